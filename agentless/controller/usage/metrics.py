"""What Prometheus is told, in its text format. What is not known is left out.

The number of series is bounded: by the GPUs there are, the states there are, and the first owners that come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agentless import __version__
from agentless.controller.usage.metrics_snapshot import MetricsSnapshot
from agentless.model.tasks.task import LIVE, Outcome, Pending

OWNERS = 100
"""So many owners have a series of their own, those that have come first; all others share one."""
OTHERS = "(others)"

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
        ((name, str(gpu.reading.index), gpu.reading.uuid), gpu)
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
    yield _gauge("gpu_state", "1 for the current state of the GPU. Other states are absent.", states, *_GPU, "state")


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
