"""What Prometheus is told, in its text format. What is not known is left out.

The number of series is bounded: by the nodes and GPUs there are, the states there are, and the first owners that come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agentless import __version__
from agentless.controller.usage.metrics_snapshot import MetricsSnapshot
from agentless.model.nodes.host_load import HostLoad
from agentless.model.tasks.task import LIVE, Outcome, Pending

OWNERS = 100
"""So many owners have a series of their own, those that have come first; all others share one."""
OTHERS = "(others)"
TYPES = 30
"""So many types of GPUs of a cluster have a series."""

_GPU = ("node", "gpu", "uuid")
_READINGS = (
    (
        "utilization_ratio",
        "Share of time in which the GPU was busy, as reported by its driver.",
        "utilization_pct",
        0.01,
    ),
    ("memory_used_bytes", "GPU memory in use.", "memory_used_mib", 2**20),
    ("memory_size_bytes", "Total GPU memory.", "memory_total_mib", 2**20),
    ("temperature_celsius", "GPU temperature.", "temperature_c", 1),
    ("power_watts", "GPU power draw.", "power_w", 1),
)
_LOADS: tuple[tuple[str, str, Callable[[HostLoad], float | None], int], ...] = (
    ("cores_busy", "CPU cores that were busy since the reading before.", lambda load: load.cores_busy, 1),
    ("load1", "Load average of the last minute.", lambda load: load.load[0] if load.load else None, 1),
    ("memory_used_bytes", "Memory that is not available.", lambda load: load.memory_used_mib, 2**20),
    ("memory_available_bytes", "Memory available for new programs.", lambda load: load.memory_available_mib, 2**20),
    ("disk_used_bytes", "Used space on the disk of the engine's root.", lambda load: load.disk_used_mib, 2**20),
    (
        "disk_size_bytes",
        "Size of the disk of the engine's root.",
        lambda load: load.disk.total_mib if load.disk else None,
        2**20,
    ),
    ("temperature_celsius", "Temperature of the hottest CPU or board sensor.", lambda load: load.temperature_c, 1),
)
_TRAFFIC: tuple[tuple[str, str, Callable[[HostLoad], float | None]], ...] = (
    (
        "receive",
        "Bytes that all physical network interfaces have received since the node booted.",
        lambda load: load.received_bytes,
    ),
    (
        "transmit",
        "Bytes that all physical network interfaces have sent since the node booted.",
        lambda load: load.sent_bytes,
    ),
)
_Values = Iterable[tuple[tuple[str, ...], float]]


def text(snapshot: MetricsSnapshot) -> bytes:
    """All metrics as they are scraped, those of the process itself included."""
    registry = CollectorRegistry()
    registry.register(_Collector(snapshot))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield from _gpus(snapshot)
        up = [((name,), float(node.observation.error is None)) for name, node in snapshot.cluster.nodes.items()]
        yield _gauge("node_up", "1 if the controller can reach the node, else 0.", up, "node")
        yield from _machines(snapshot)
        yield from _clusters(snapshot)
        yield from _queue(snapshot)
        ended = [((state,), float(snapshot.ended.get(state, 0))) for state in get_args(Outcome)]
        yield _counter("tasks_ended", "Tasks that ended since the controller started.", ended, "state")
        seconds: dict[str, float] = {}
        for number, (owner, spent) in enumerate(snapshot.gpu_seconds.items()):
            label = owner if number < OWNERS else OTHERS
            seconds[label] = seconds.get(label, 0.0) + spent
        held = [((owner,), spent) for owner, spent in seconds.items()]
        yield _counter("gpu_seconds", "GPU time allocated to tasks since the controller started.", held, "owner")
        yield _gauge("controller_info", "Version of agentless.", [((__version__,), 1.0)], "version")
        yield _gauge(
            "controller_warnings", ("Number of warnings in agentless controller status."), [((), snapshot.warnings)]
        )


def _gpus(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    named = [
        ((name, str(gpu.reading.number), gpu.reading.uuid), gpu)
        for name, node in snapshot.cluster.nodes.items()
        for gpu in node.gpus
    ]
    current = [(labels, gpu.reading) for labels, gpu in named if snapshot.is_current(labels[0])]
    for name, words, field, unit in _READINGS:
        read = ((labels, getattr(reading, field)) for labels, reading in current)
        yield _gauge(
            f"gpu_{name}", words, ((labels, value * unit) for labels, value in read if value is not None), *_GPU
        )
    states = (((*labels, gpu.state), 1.0) for labels, gpu in named)
    slices = [((*labels, gpu.reading.gpu, gpu.reading.profile), 1.0) for labels, gpu in named if gpu.reading.parent]
    if slices:
        yield _gauge("gpu_slice_info", "The GPU of a slice, and its profile.", slices, *_GPU, "parent", "profile")
    yield _gauge("gpu_state", "1 for the current state of the GPU. Other states are absent.", states, *_GPU, "state")


def _machines(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    nodes = snapshot.cluster.nodes
    cores = ((name, node.observation.host.cores) for name, node in nodes.items() if node.observation.host)
    yield _gauge("node_cores", "CPU cores of the node.", [((name,), each) for name, each in cores if each], "node")
    aside = [((name,), node.cores_set_aside) for name, node in nodes.items()]
    yield _gauge("node_cores_set_aside", "CPU cores of the tasks of all controllers.", aside, "node")
    memory = [((name,), node.memory_set_aside) for name, node in nodes.items()]
    yield _gauge("node_memory_set_aside_bytes", "Memory of the tasks of all controllers.", memory, "node")
    loads = [
        ((name,), node.observation.load)
        for name, node in nodes.items()
        if node.observation.load is not None and snapshot.is_current(name)
    ]
    for name, words, read, unit in _LOADS:
        values = [(labels, value * unit) for labels, load in loads if (value := read(load)) is not None]
        yield _gauge(f"node_{name}", words, values, "node")
    for way, words, read in _TRAFFIC:
        counted = [(labels, value) for labels, load in loads if (value := read(load)) is not None]
        yield _counter(f"node_network_{way}_bytes", words, counted, "node")


def _clusters(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """The clusters, if there are any; a type of GPU that has no name is an empty one."""
    clusters = snapshot.clusters
    if not clusters:
        return
    up = [((each.name,), float(each.state == "online")) for each in clusters]
    yield _gauge("cluster_up", "1 if the login node and the cluster answer, else 0.", up, "cluster")
    known = [each for each in clusters if each.asked_at]
    of_types = [(each, kind, count) for each in known for kind, count in [*each.gpus.items()][:TYPES]]
    every = [((each.name, kind), float(count)) for each, kind, count in of_types]
    yield _gauge("cluster_gpus", "GPUs of the cluster.", every, "cluster", "type")
    used = [((each.name, kind), float(each.gpus_used.get(kind, 0))) for each, kind, _ in of_types]
    yield _gauge("cluster_gpus_allocated", "GPUs that jobs of anybody have.", used, "cluster", "type")
    free = [((each.name,), float(each.gpus_free)) for each in known]
    yield _gauge("cluster_gpus_free", "GPUs that a job could get.", free, "cluster")
    out = [((each.name,), float(each.nodes_out)) for each in known]
    yield _gauge("cluster_nodes_out", "Compute nodes that are drained or down.", out, "cluster")
    tasks = Counter((task.node, task.state) for task in snapshot.tasks)
    states = [((each.name, state), float(tasks[each.name, state])) for each in clusters for state in LIVE]
    yield _gauge("cluster_tasks", "Live tasks of this controller there.", states, "cluster", "state")


def _queue(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    states = Counter(task.state for task in snapshot.tasks)
    yield _gauge("tasks", "Live tasks of this controller.", [((state,), states[state]) for state in LIVE], "state")
    since = [task.created_at for task in snapshot.tasks if isinstance(task.status, Pending)]
    yield _gauge("queue_length", "Pending tasks.", [((), len(since))])
    oldest = [((), max(0.0, snapshot.cluster.at - min(since)))] if since else []
    yield _gauge("queue_oldest_wait_seconds", "Age of the oldest pending task.", oldest)


def _gauge(name: str, words: str, values: _Values, *labels: str) -> Metric:
    family = GaugeMetricFamily(f"agentless_{name}", words, labels=labels)
    for each, value in values:
        family.add_metric(each, value)
    return family


def _counter(name: str, words: str, values: _Values, *labels: str) -> Metric:
    family = CounterMetricFamily(f"agentless_{name}", words, labels=labels)
    for each, value in values:
        family.add_metric(each, value)
    return family
