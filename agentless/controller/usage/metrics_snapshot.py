"""The values that `/metrics` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Task
from agentless.model.view import ClusterView
from agentless.rules.nodes.survey import STALE_AFTER


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Snapshot of the cluster. `ended` counts tasks by state and `gpu_seconds` are by owner, both since the start."""

    cluster: Cluster
    tasks: tuple[Task, ...]
    ended: Mapping[str, int]
    gpu_seconds: Mapping[str, float]
    warnings: int
    clusters: tuple[ClusterView, ...] = ()

    def is_current(self, node: str) -> bool:
        """Whether the readings of a node are current: those from before a link broke are not."""
        seen = self.cluster.nodes[node].observation
        return seen.error is None and seen.sampled_at is not None and self.cluster.at - seen.sampled_at <= STALE_AFTER
