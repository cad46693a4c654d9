"""Where a task goes. Exact targets for now: the answer is that place, or every reason against it."""

from __future__ import annotations

from agentless.errors import Refused, Unreachable
from agentless.model.cluster import Cluster, Gpu, Node
from agentless.model.spec import TaskSpec
from agentless.model.target import Target
from agentless.model.task import Placement


def place(cluster: Cluster, target: Target, spec: TaskSpec) -> Placement:
    """The placement on exactly this target; raises Refused (or Unreachable) with all reasons in one sentence."""
    node = cluster.nodes[target.node]
    if node.state == "offline":
        raise Unreachable(f"{node.name} cannot be reached: {node.reason}")
    reasons = obstacles(node, target, spec)
    if reasons:
        raise Refused(f"{target}: " + "; ".join(reasons))
    by_index = {gpu.reading.index: gpu for gpu in node.gpus}
    host = node.observation.host
    numa = next((n for n in (host.numa if host else ()) if n.id == target.numa), None)
    return Placement(
        node=node.name,
        gpus=target.gpus,
        gpu_uuids=tuple(by_index[index].reading.uuid for index in target.gpus),
        cpus=numa.cpus if numa else None,
        numa=numa.id if numa else None,
    )


def obstacles(node: Node, target: Target, spec: TaskSpec) -> tuple[str, ...]:
    """What stands in the way of this target on a node that can be reached; empty when nothing does."""
    reasons: list[str] = []
    if node.state != "online":
        reasons.append(f"{node.name} is {node.state}: {node.reason}")
    by_index = {gpu.reading.index: gpu for gpu in node.gpus}
    reasons += filter(None, (_gpu_obstacle(index, by_index, node, share=spec.share) for index in target.gpus))
    host = node.observation.host
    numas = [n.id for n in host.numa] if host else []
    if target.numa is not None and target.numa not in numas:
        have = ", ".join(map(str, numas)) or "none"
        reasons.append(f"NUMA node {target.numa} is not there ({node.name} has {have})")
    if host is not None and spec.cores and host.cores and spec.cores > host.cores:
        reasons.append(f"{spec.cores:g} cores are asked for and {node.name} has {host.cores}")
    if host is not None and spec.memory and host.memory_mib and spec.memory > host.memory_mib << 20:
        reasons.append(f"more memory is asked for than the {host.memory_mib:,} MiB that {node.name} has")
    return tuple(reasons)


def _gpu_obstacle(index: int, by_index: dict[int, Gpu], node: Node, *, share: bool) -> str | None:
    gpu = by_index.get(index)
    if gpu is None:
        if node.state != "online":
            return None
        last = max(by_index, default=None)
        return f"GPU {index} is not there ({node.name} has " + (
            "no GPU)" if last is None else f"GPUs 0-{last})" if last else "only GPU 0)"
        )
    if gpu.state == "free" or (gpu.state == "unknown" and node.state != "online"):
        return None
    if gpu.state == "foreign":
        return None if share else f"GPU {index} is foreign: {gpu.reason} (--share to run beside it)"
    return f"GPU {index} is {gpu.state}: {gpu.reason}"
