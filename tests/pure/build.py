"""Small words for clusters and tasks, so that a test shows only what it is about.

A GPU's UUID here is `GPU-<node>-<index>`, times are seconds around `NOW`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentless.model.containers.claim import labels_of
from agentless.model.containers.container import Container
from agentless.model.containers.signature import Signer
from agentless.model.nodes.cluster import Cluster, Observation
from agentless.model.nodes.engine import ToolkitFacts
from agentless.model.nodes.gpu import GpuProcess, GpuReading, GpuSample
from agentless.model.nodes.node import EngineFacts, HostFacts, NodeConfig, NumaNode
from agentless.model.scheduling.needs import Needs, parse_target
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import (
    Assigning,
    Blocked,
    Ended,
    Lost,
    Paused,
    Pending,
    Placement,
    Running,
    Scheduled,
    Submitted,
    Task,
    TaskStatus,
)
from agentless.rules.nodes.survey import survey

NOW = 1_800_000_000.0
CID = "c0ffee" * 10 + "beef"
READY = {"nvidia": ToolkitFacts("runtime")}
SIGNER = Signer("c1", b"a key of nobody's")
"""The controller that has started what `container` gives."""


RUN = ""
"""What the UUIDs end with, see `own_gpus`."""


def uuid(node: str, index: int) -> str:
    return f"GPU-{node}-{index}{RUN}"


def reading(node: str, index: int, **changes: Any) -> GpuReading:
    plain = GpuReading(index, uuid(node, index), "NVIDIA L4", "550.54.15", memory_total_mib=23034, memory_used_mib=1)
    return replace(plain, **changes)


def process(node: str, index: int, pid: int = 4711, **changes: Any) -> GpuProcess:
    plain = GpuProcess(uuid(node, index), pid, "python", 2048, user="bob", command="python train.py")
    return replace(plain, **changes)


def seen(
    node: str = "node1",
    gpus: int = 2,
    processes: tuple[GpuProcess, ...] | None = (),
    containers: Any = (),
    **changes: Any,
) -> Observation:
    """A node that is connected, was sampled just now, and has two NUMA nodes, 32 cores and 128 GiB."""
    healthy = Observation(
        error=None,
        sample=GpuSample(tuple(reading(node, index) for index in range(gpus)), processes),
        sampled_at=NOW,
        host=HostFacts(32, 131072, (NumaNode(0, "0-15"), NumaNode(1, "16-31"))),
        engine=EngineFacts("28.2.2", toolkits=READY, containers=tuple(containers)),
    )
    return replace(healthy, **changes)


def cluster(observations: dict[str, Observation] | Observation, tasks: tuple[Task, ...] = (), **config: Any) -> Cluster:
    """The cluster of these observations; a single one is of `node1`."""
    by_name = {"node1": observations} if isinstance(observations, Observation) else observations
    nodes = {name: NodeConfig(name, f"{name}.lab", **config) for name in by_name}
    return survey(nodes, by_name, tasks, NOW)


def spec(*command: str, **fields: Any) -> TaskSpec:
    return TaskSpec(command or ("true",), image=fields.pop("image", "busybox"), **fields)


def placement(target: str = "node1::0") -> Placement:
    meant = parse_target(target)
    return Placement(meant.node or "", meant.indices, tuple(uuid(meant.node or "", index) for index in meant.indices))


def task(name: str = "t1", target: str = "node1::0", state: str = "running", **fields: Any) -> Task:
    """A task in a state that is named; `fields` are the task's own, like `stop` and `spec`."""
    at = placement(target)
    statuses: dict[str, TaskStatus] = {
        "blocked": Blocked((Requirement("t0"),)),
        "scheduled": Scheduled(NOW + 60),
        "pending": Pending(),
        "assigning": Assigning(at, NOW - 60),
        "submitted": Submitted(at, CID, NOW - 60),
        "running": Running(at, CID, NOW - 60),
        "paused": Paused(at, CID, NOW - 60),
        "lost": Lost(at, NOW - 60, "cut off", CID, NOW - 90),
        "lost before an answer": Lost(at, NOW - 60, "cut off"),
        "ended": Ended("completed", NOW - 1, 0, None, at, CID, NOW - 60),
    }
    plain: dict[str, Any] = {"spec": spec(), "batch": name, "owner": "me@here", "created_at": NOW - 100}
    made = Task(id=name, status=statuses[state], **(plain | fields))
    if made.spec.needs != Needs():
        return made
    return replace(made, spec=replace(made.spec, needs=parse_target(target)))


STATES = (
    "pending", "assigning", "running", "paused", "lost", "lost before an answer", "ended", "scheduled", "blocked",
    "submitted",
)  # fmt: skip


def container(of: Task, state: Any = "running", **changes: Any) -> Container:
    """The container that `of` would have on its node."""
    began = None if state in ("created", "queued") else NOW - 60
    ended = NOW - 10 if state in ("exited", "dead") else None
    plain = Container(
        CID, of.container_name, state, labels_of(of, placement(str(of.spec.needs)), "c1"), 0 if ended else None,
        created_at=NOW - 61, started_at=began, finished_at=ended, signed=True,
    )  # fmt: skip
    return replace(plain, **changes)
