"""Published values, made from the model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime

from agentless.model.caller import Caller
from agentless.model.nodes.cluster import Gpu, Node, Observation
from agentless.model.nodes.gpu import GpuProcess
from agentless.model.nodes.host_load import HostLoad
from agentless.model.nodes.node import EngineFacts, NodeConfig
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.task import Assigning, Ended, Lost, Paused, Pending, Running, Scheduled, Task
from agentless.model.units import counted, format_duration
from agentless.model.usage.idle import IdleGpus
from agentless.model.view import CheckView, GpuView, NodeView, NumaView, OutputView, ReservationView, TaskView
from agentless.rules.nodes.cards import without_driver
from agentless.rules.nodes.cgroup_limits import what_it_lacks
from agentless.rules.nodes.gpu_access import unlisted, why_no_gpus
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.tasks.ending import Ending
from agentless.rules.usage.idle import words


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
    status, placement = task.status, task.placement
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
        expected_start=timestamp(outlook.promise.start) if outlook.promise else None,
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
    )


def seen_by(caller: Caller, view: TaskView) -> TaskView:
    """The view as the caller sees it: `mine` is about the caller."""
    return replace(view, mine=view.owner == caller.name)


_STOPPING = {"stop": "stopping", "kill": "killing", "timeout": "stopping at its time limit"}


def _reason(task: Task) -> str | None:
    match task.status:
        case Lost(container=None) if task.stop:
            return f"{_STOPPING[task.stop]}: {task.node} has yet to confirm that the task has not started"
        case Scheduled() | Pending() if task.stop:
            return f"{_STOPPING[task.stop]}: waiting until the state can be saved"
        case Scheduled(reason=reason) | Pending(reason=reason) | Lost(reason=reason):
            return reason or None
        case Assigning(step=step) if step and not task.stop:
            return step
        case Ended(reason=ended):
            return ended
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
    return NodeView(
        name=node.name,
        state=node.state,
        reason=node.reason,
        gpus=sum(gpu.home is None for gpu in node.gpus),
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
    )


def _numa(node: Node) -> tuple[NumaView, ...]:
    """The NUMA nodes, each with its GPUs; of a GPU whose place the kernel does not know, the driver may."""
    seen = node.observation
    numa = seen.host.numa if seen.host else ()
    near = {bus: each.id for each in numa for bus in each.gpus}
    gpus = defaultdict[int | None, list[int]](list)
    for gpu in node.gpus if numa else ():
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


def _breakdown(node: Node) -> str:
    """Why launches on a node fail, and what follows. Empty if they do not."""
    broken = node.observation.broken
    if not broken:
        return ""
    return f"{broken.reason}; after the fix, run: agentless nodes resume {node.name} (or let a task try the node)"


def _hands_out_gpus(seen: Observation) -> bool | None:
    """Whether the engine has what it needs to hand out the GPUs of the node, or any GPUs where it has none."""
    toolkits = seen.engine.toolkits if seen.engine else {}
    if seen.sample and seen.sample.gpus:
        toolkit = toolkits.get(seen.sample.gpus[0].vendor)
    else:
        toolkit = next(iter(toolkits.values()), None)
    return toolkit.ready if toolkit else None


_DRIVER = "nvidia"
"""The check of the GPU driver, whichever vendor's: it was published by this name when NVIDIA was the only one."""


def checks(node: Node, twin: str = "") -> tuple[CheckView, ...]:
    """The checks of `doctor` for a node, each after those that it depends on. `twin`: it is another node's machine."""
    seen = node.observation
    if seen.error is not None:
        rest = (
            CheckView(node.name, what, None, "skipped; fix the failed check above first")
            for what in ("docker", _DRIVER, "toolkit")
        )
        return (CheckView(node.name, "reach", False, seen.error), *rest)
    found = [CheckView(node.name, "reach", True, f"{address_of(node.config)} via {node.config.connection}")]
    if twin:
        found.append(CheckView(node.name, "identity", False, twin))
    engine, sample = seen.engine, seen.sample
    if engine is None or sample is None:
        return (*found, CheckView(node.name, "docker", None, node.reason))
    broken = _breakdown(node)
    docker = engine.error or (broken if seen.broken and seen.broken.fault != "gpus" else "")
    found.append(CheckView(node.name, "docker", not docker, docker or _version(engine)))
    if problem := sample.error or without_driver(seen.host, sample):
        found.append(CheckView(node.name, _DRIVER, False, problem))
    else:
        count = len(sample.gpus)
        driver = next((gpu.driver for gpu in sample.gpus if gpu.driver), None)
        words = counted(count, "GPU") + (f", driver {driver}" if driver else "")
        found.append(CheckView(node.name, _DRIVER, True, words if count else "no GPU: CPU tasks only"))
    if not sample.gpus:
        found.append(CheckView(node.name, "toolkit", True, "not needed without GPUs"))
    elif broken and not docker:
        found.append(CheckView(node.name, "toolkit", False, broken))
    else:
        found.append(_toolkit(node, engine, sample.gpus[0].vendor))
    if engine.lacks:
        found.append(CheckView(node.name, "limits", False, what_it_lacks(node.config, engine.lacks)))
    return tuple(found)


def _version(engine: EngineFacts) -> str:
    """The version of an engine, and what about it is not as usual."""
    found = [f"version {engine.version}"]
    found += ["containerd's image store"] if engine.store == "containerd" else []
    found += ["rootless"] if engine.rootless else []
    return ", ".join([*found, engine.note] if engine.note else found)


def _toolkit(node: Node, engine: EngineFacts, vendor: str) -> CheckView:
    toolkit = engine.toolkits.get(vendor)
    if toolkit is None and engine.error:
        return CheckView(node.name, "toolkit", None, engine.error)
    if toolkit is None or toolkit.ready:
        missing = unlisted(node)
        by_cdi = " by CDI" if toolkit and toolkit.way == "cdi" and not node.config.has_podman else ""
        can = f"{node.config.engine_title} can use GPUs{by_cdi}"
        return CheckView(node.name, "toolkit", not missing, missing or can)
    return CheckView(node.name, "toolkit", None if engine.error else False, engine.error or why_no_gpus(node) or "")
