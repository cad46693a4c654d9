"""Published values, made from the model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from agentless.model.caller import Caller
from agentless.model.containers.job_id import job_number
from agentless.model.nodes.check import Check
from agentless.model.nodes.cluster import Gpu, Node, Observation
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.gpu import GpuProcess
from agentless.model.nodes.host_load import HostLoad
from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.task import (
    Assigning,
    Blocked,
    Ended,
    Lost,
    Paused,
    Pending,
    Running,
    Scheduled,
    Submitted,
    Task,
)
from agentless.model.units import format_duration
from agentless.model.usage.idle import IdleGpus
from agentless.model.view import (
    CheckView,
    ClusterNodeView,
    ClusterView,
    GangView,
    GpuView,
    NodeView,
    NumaView,
    OutputView,
    ReservationView,
    TaskView,
)
from agentless.rules.explain.waits import waits_for
from agentless.rules.nodes.cards import without_driver
from agentless.rules.nodes.gpu_access import has_its_own
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.tasks.ending import Ending
from agentless.rules.tasks.gangs.gangs import how_it_ended
from agentless.rules.usage.idle import words

MAX_OUT = 20
"""The most nodes of a cluster that are named because they are out."""


def timestamp(seconds: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC with milliseconds."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def task_view(
    task: Task,
    intruders: tuple[GpuProcess, ...],
    outlook: Outlook,
    *,
    mine: bool,
    retried_as: str | None = None,
    idle: IdleGpus | None = None,
    ending: Ending | None = None,
    now: float = 0.0,
    outputs: tuple[OutputView, ...] = (),
) -> TaskView:
    """The published value of a task."""
    status, placement, gang = task.status, task.placement, task.spec.gang
    started = status.started_at if isinstance(status, (Running, Paused, Lost, Ended)) else None
    return TaskView(
        id=task.id,
        name=task.spec.name,
        state=task.state,
        node=task.node,
        gpus=placement.gpus if placement else task.spec.needs.indices,
        gpu_uuids=placement.gpu_uuids if placement else (),
        image=task.spec.image,
        env=task.spec.container,
        command=task.spec.command,
        env_names=task.spec.env_names,
        batch=task.batch,
        job_nodes=task.spec.multinode.size if task.spec.multinode else 1,
        compute_nodes=(placement.compute_nodes or None) if placement else None,
        gang=GangView(gang.id, gang.rank, gang.size, gang.members) if gang else None,
        owner=task.owner,
        created_at=timestamp(task.created_at) or "",
        started_at=timestamp(started),
        ended_at=timestamp(status.ended_at) if isinstance(status, Ended) else None,
        exit_code=status.exit_code if isinstance(status, Ended) else None,
        reason=outlook.reason
        or _reason(task)
        or (ending.words(now) if ending and now >= ending.at - ending.lead else None)
        or (words(idle, placement, now) if idle and placement else None),
        container=task.container,
        target=str(task.spec.needs),
        cores=task.spec.cores,
        memory_bytes=task.spec.memory,
        labels=dict(task.spec.labels),
        mine=mine,
        intruders=intruders,
        priority=task.spec.terms.priority,
        time_limit=task.spec.terms.time_limit,
        position=outlook.position,
        expected_start=_expected_start(task, outlook),
        scheduled_for=timestamp(status.until) if isinstance(status, Scheduled) else None,
        attempt=task.attempt,
        retries=task.spec.terms.retries,
        retried_as=retried_as,
        parameters=dict(task.spec.parameters),
        moved=task.rank is not None and isinstance(status, Pending),
        idle_since=timestamp(idle.all_since) if idle else None,
        about=outlook.promise.about if outlook.promise else False,
        outputs=outputs,
        stops_at=timestamp(ending.at) if ending else None,
        workload=task.spec.workload or "task",
        ports=task.spec.ports,
        requires=task.spec.terms.requires,
        waits_for=status.on if isinstance(status, Blocked) else (),
        workflow=task.spec.job.workflow if task.spec.job else None,
        job=task.spec.job.name if task.spec.job else None,
        preemptible=task.spec.terms.preemptible,
        preemptions=task.preemptions,
        victims=task.victims,
    )


def seen_by(caller: Caller, view: TaskView) -> TaskView:
    """The view as the caller sees it: `mine` is about the caller."""
    return replace(view, mine=view.owner == caller.name)


def _expected_start(task: Task, outlook: Outlook) -> str | None:
    if isinstance(task.status, Submitted):
        return None if task.status.expected is None else timestamp(task.status.expected)
    return timestamp(outlook.promise.start) if outlook.promise else None


_STOPPING = {"stop": "stopping", "kill": "killing", "timeout": "stopping at its time limit", "preempt": "giving way"}


def _reason(task: Task) -> str | None:
    match task.status:
        case Lost(container=None) if task.stop:
            return f"{_STOPPING[task.stop]}: {task.node} has yet to confirm that the task has not started"
        case Blocked() | Scheduled() | Pending() if task.stop:
            return f"{_STOPPING[task.stop]}: waiting until the state can be saved"
        case Blocked(on=on, reason=reason):
            return reason or waits_for(on)
        case Scheduled(reason=reason) | Pending(reason=reason) | Lost(reason=reason):
            return reason or None
        case Submitted(placement=placement, container=job, reason=reason) if not task.stop:
            if placement.after and not reason:
                reason = waits_for(task.spec.terms.requires)
            return f"job {job_number(job)}" + (f": {reason}" if reason else "")
        case Assigning(step=step) if step and not task.stop:
            return step
        case Ended(reason=ended):
            return ended or how_it_ended(task)
        case _:
            return _STOPPING[task.stop] + (f": {task.stop_reason}" if task.stop_reason else "") if task.stop else None


def gpu_view(
    node: str,
    gpu: Gpu,
    reserved: str | None = None,
    idle_since: float | None = None,
    now: float = 0.0,
    asking: str | None = None,
) -> GpuView:
    """The published value of a GPU.

    `reserved` is the notice about its reservations, `idle_since` since when its task does not use it, `asking` the
    owner who asks.
    """
    reading = gpu.reading
    idle = "" if idle_since is None else f", idle for {format_duration(now - idle_since)}"
    return GpuView(
        node=node,
        index=reading.index,
        uuid=reading.uuid,
        name=reading.name,
        driver=reading.driver,
        memory_total_mib=reading.memory_total_mib,
        memory_used_mib=reading.memory_used_mib,
        memory_free_mib=reading.memory_free_mib,
        utilization_pct=reading.utilization_pct,
        temperature_c=reading.temperature_c,
        power_w=reading.power_w,
        power_limit_w=reading.power_limit_w,
        state=gpu.state,
        task=gpu.holder.task if gpu.holder else None,
        owner=gpu.holder.owner if gpu.holder else None,
        reason=gpu.reason + idle,
        processes=gpu.processes,
        intruders=gpu.intruders,
        tasks=tuple(holder.task for holder in gpu.holders),
        shares=gpu.shares,
        reserved=reserved,
        idle_since=timestamp(idle_since),
        mine=gpu.holder is not None and gpu.holder.owner == asking,
        desktop=gpu.desktop,
        assumed=gpu.assumed,
        unified=reading.unified,
        kind=reading.kind,
        number=reading.number,
        parent=reading.parent,
        part=reading.part,
        profile=reading.profile,
        vendor=reading.vendor or None,
    )


def reservation_view(reservation: Reservation, in_the_way: tuple[str, ...], now: float) -> ReservationView:
    """The published value of a reservation."""
    return ReservationView(
        id=reservation.id,
        node=reservation.node,
        gpus=reservation.gpus,
        owner=reservation.owner,
        begins_at=timestamp(reservation.begin) or "",
        ends_at=timestamp(reservation.end) or "",
        reason=reservation.reason,
        made_by=reservation.made_by,
        active=reservation.begin <= now < reservation.end,
        in_the_way=in_the_way,
    )


def node_view(node: Node) -> NodeView:
    """The published value of a node."""
    seen, config = node.observation, node.config
    load = (seen.load if seen.error is None else None) or HostLoad()
    averages = load.load or (None, None, None)
    works = seen.engine if seen.engine and not seen.engine.error else None
    return NodeView(
        name=node.name,
        state=node.state,
        reason=node.reason,
        gpus=sum(gpu.home is None and not gpu.reading.in_parts for gpu in node.gpus),
        gpus_free=sum(gpu.state == "free" for gpu in node.gpus),
        cores=seen.host.cores if seen.host else None,
        memory_mib=seen.host.memory_mib if seen.host else None,
        docker=seen.engine.version if seen.engine else None,
        nvidia_docker=_hands_out_gpus(seen),
        driver=next((gpu.reading.driver for gpu in node.gpus if gpu.reading.driver), None),
        address=address_of(config),
        connection=config.connection,
        labels=dict(config.labels),
        sampled_at=timestamp(seen.sampled_at),
        drained=node.drained,
        tasks=node.tasks,
        cores_busy=load.cores_busy,
        cores_set_aside=round(node.cores_set_aside, 2),
        load_1m=averages[0],
        load_5m=averages[1],
        load_15m=averages[2],
        memory_used_mib=load.memory_used_mib,
        memory_available_mib=load.memory_available_mib,
        memory_set_aside_mib=int(node.memory_set_aside) >> 20,
        disk_path=load.disk.path if load.disk else None,
        disk_used_mib=load.disk.used_mib if load.disk else None,
        disk_total_mib=load.disk.total_mib if load.disk else None,
        temperature_c=load.temperature_c,
        network_in_bytes_per_second=load.network_in_bytes_per_second,
        network_out_bytes_per_second=load.network_out_bytes_per_second,
        numa=_numa(node),
        cards=without_driver(seen.host, seen.sample),
        rootless=works.rootless if works else None,
        image_store=works.store if works else None,
        cgroup_version=works.cgroup_version if works else None,
        missing_cgroups=tuple(sorted(works.lacks)) if works else (),
    )


def cluster_view(
    config: NodeConfig,
    nodes: Sequence[ClusterNode],
    asked_at: float | None,
    silence: str | None,
    *,
    online: bool,
    tasks: int,
) -> ClusterView:
    """The published value of a cluster, with its `nodes` as they were at `asked_at`; None: they are not known yet."""
    every, used = Counter[str](), Counter[str]()
    for node in nodes:
        every.update(dict(node.gpus))
        used.update(dict(node.gpus_used))
    out = [node for node in nodes if node.is_out]
    return ClusterView(
        name=config.name,
        engine="slurm",
        state="online" if silence is None else "offline" if not online else "degraded",
        reason=silence or "",
        address=address_of(config),
        tasks=tasks,
        nodes=len(nodes),
        gpus=dict(every),
        gpus_used=dict(used),
        gpus_free=sum(node.gpus_free for node in nodes),
        nodes_out=len(out),
        out={node.name: node.reason or node.state for node in out[:MAX_OUT]},
        asked_at=timestamp(asked_at),
    )


def cluster_node_view(node: ClusterNode, as_of: float | None = None) -> ClusterNodeView:
    """The published value of a compute node; `as_of` (Unix seconds) is when its cluster has answered last."""
    return ClusterNodeView(
        name=node.name,
        state=node.state,
        reason=node.reason,
        gpus=dict(node.gpus),
        gpus_used=sum(count for _, count in node.gpus_used),
        cores=node.cores,
        cores_used=node.cores_used,
        memory_mib=node.memory_mib,
        memory_used_mib=node.memory_used_mib,
        gpus_free=node.gpus_free,
        as_of=timestamp(as_of),
    )


def _numa(node: Node) -> tuple[NumaView, ...]:
    """The NUMA nodes, each with its GPUs; of a GPU whose place the kernel does not know, the driver may."""
    seen = node.observation
    numa = seen.host.numa if seen.host else ()
    near = {bus: each.id for each in numa for bus in each.gpus}
    gpus = defaultdict[int | None, list[int]](list)
    for gpu in node.gpus if numa else ():
        if gpu.reading.parent is not None:
            continue
        index = gpu.reading.index
        by_driver = seen.topology.numa.get(index) if seen.topology else None
        gpus[near.get(gpu.reading.pci_bus_id or "", by_driver)].append(index)
    return tuple(NumaView(each.id, each.cpus, each.cores, each.memory_mib, tuple(gpus[each.id])) for each in numa)


def address_of(config: NodeConfig) -> str:
    """The address of a node, as a user writes it."""
    if config.connection == "local":
        return "this machine"
    user = f"{config.user}@" if config.user else ""
    return f"{user}{config.host}" + (f":{config.port}" if config.port else "")


def _hands_out_gpus(seen: Observation) -> bool | None:
    """Whether the engine has what it needs to hand out the GPUs of the node, or any GPUs where it has none."""
    toolkits = seen.engine.toolkits if seen.engine else {}
    if seen.sample and seen.sample.gpus:
        toolkit = toolkits.get(seen.sample.gpus[0].vendor)
    else:
        toolkit = next(iter(toolkits.values()), None)
    return toolkit.ready or has_its_own(seen) if toolkit else None


def check_view(node: str, check: Check) -> CheckView:
    """The published value of a check."""
    return CheckView(
        node=node,
        check=check.name,
        ok={"ok": True, "warning": True, "failed": False}.get(check.verdict),
        detail=check.detail,
        verdict=check.verdict,
        seen=check.seen,
        wrong=check.wrong,
        fix=check.fix,
        why=check.why,
        here=check.here,
    )
