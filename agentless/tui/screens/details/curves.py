"""How busy GPUs and nodes were: the plots of each screen of details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentless.client import history
from agentless.client.panels import Plot, Shown
from agentless.client.words import gpu_place, unix_time, where
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.widgets.curves import RANGES, Curves

MOST_POINTS = 3600
"""Points that the controller gives at most."""
LONGEST = max(RANGES.values())
"""Seconds that the controller remembers."""


class _Asking(Curves):
    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self.cluster = cluster

    def get(self, span: float, points: int, **targets: object) -> Any:
        return self.app.client.get("/v1/history", since=span, points=points, **targets)  # type: ignore[attr-defined]


class GpuCurves(_Asking):
    """Of one GPU."""

    def __init__(self, cluster: ClusterState, gpu: Row) -> None:
        super().__init__(cluster)
        self._gpu = gpu

    def fetch(self, span: float, points: int) -> Shown:
        found = self.get(span, points, gpu=gpu_place(self._gpu))
        gpu = self.cluster.gpus.get((self._gpu["node"], self._gpu["uuid"]), self._gpu)
        return history.shown(found, points, history.of_gpu(found["gpus"][0], gpu) if found["gpus"] else [])


class NodeCurves(_Asking):
    """Of a node and all of its GPUs."""

    def __init__(self, cluster: ClusterState, name: str) -> None:
        super().__init__(cluster)
        self._about = name

    def fetch(self, span: float, points: int) -> Shown:
        gpus = self.cluster.gpus_of(self._about)
        found = self.get(span, points, node=self._about, **({"gpu": self._about} if gpus else {}))
        plots = history.of_gpus(found["gpus"], gpus)
        if node := self.cluster.nodes.get(self._about):
            plots += [plot for each in found["nodes"] for plot in history.of_node(each, node)]
        return history.shown(found, points, plots)


class TaskCurves(_Asking):
    """Of the GPUs of a task, from its start to its end."""

    def __init__(self, cluster: ClusterState, task: Row) -> None:
        super().__init__(cluster)
        self._row = task

    def ranges(self) -> Mapping[str, float]:
        """The whole task, and what is shorter."""
        begin, end = self._times()
        return {"all": end - begin, **{name: span for name, span in RANGES.items() if span < end - begin}}

    def fetch(self, span: float, points: int) -> Shown | str:
        task = self._now()
        if task["started_at"] is None or not task["gpus"]:
            return "The task has no GPUs" if task["started_at"] else "The task has not started"
        _, end = self._times()
        since = max(1.0, self.cluster.now - end + span)
        points = max(1, min(MOST_POINTS, round(points * since / span)))
        found = self.get(min(since, LONGEST), points, gpu=where(task))
        return history.between(found, points, end - span, None if task["ended_at"] is None else end, self._plots)

    def _plots(self, found: Row) -> list[Plot]:
        held = set(self._row["gpu_uuids"])
        return history.of_gpus(found["gpus"], (gpu for gpu in self.cluster.gpus.values() if gpu["uuid"] in held))

    def _now(self) -> Row:
        """The task in its present state."""
        return self.cluster.tasks.get(self._row["id"], self._row)

    def _times(self) -> tuple[float, float]:
        """When it began and ended; now if it has not. At least a minute apart."""
        task = self._now()
        end = unix_time(task["ended_at"]) if task["ended_at"] else self.cluster.now
        begin = unix_time(task["started_at"]) if task["started_at"] else end
        return min(begin, end - 60.0), end
