"""The view of all nodes."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.client.words import cause_of, cores_in_use, engine_version, in_use, nodes_out
from agentless.model.units import counted
from agentless.tui.data.cluster import ClusterState, Row, count, natural
from agentless.tui.screens.view import View
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece
from agentless.tui.widgets.table import TableColumn


class Nodes(View):
    """A row for each node, then one for each cluster."""

    KINDS = frozenset({"nodes", "clusters", "gpus"})

    def __init__(self, cluster: ClusterState, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(cluster, id=id)
        self._divided: dict[str, list[Row]] = {}  # the GPUs of nodes with slices

    def columns(self) -> Sequence[TableColumn]:
        return (
            TableColumn("NODE", lambda node: node["name"], lambda node: natural(node["name"])),
            TableColumn("STATE", lambda node: (node["state"], look.style_of(node["state"]))),
            TableColumn("FREE", self._free_words, self._free, right=True),
            TableColumn("TASKS", lambda node: look.of(node["tasks"], ""), lambda node: node["tasks"], right=True),
            TableColumn("CORES", cores_in_use, lambda node: node["cores_busy"] or node["cores"], right=True, rank=1),
            TableColumn(
                "MEMORY",
                lambda node: in_use(node["memory_used_mib"], node["memory_mib"]),
                lambda node: node["memory_used_mib"] or node["memory_mib"],
                right=True,
                rank=1,
            ),
            TableColumn(
                "TEMP",
                lambda node: look.of(node["temperature_c"], "C"),
                lambda n: n["temperature_c"],
                right=True,
                rank=4,
            ),
            TableColumn(
                "DISK",
                lambda node: in_use(node["disk_used_mib"], node["disk_total_mib"]),
                lambda node: node["disk_used_mib"],
                right=True,
                rank=5,
            ),
            TableColumn("DOCKER", engine_version, rank=3),
            TableColumn("DRIVER", lambda node: node["driver"] or "-", rank=4),
            TableColumn("ADDRESS", lambda node: node["address"], rank=6),
            TableColumn("REASON", _why, flexible=True),
        )

    def _free(self, node: Row) -> int:
        return int(node["gpus_free"]) - self.cluster.reserved[node["name"]]

    def all_rows(self) -> list[Row]:
        self._divided = {gpu["node"]: [] for gpu in self.cluster.slices()}
        for gpu in self.cluster.gpus.values() if self._divided else ():
            if gpu["node"] in self._divided:
                self._divided[gpu["node"]].append(gpu)
        return [*self.cluster.ordered_nodes(), *map(_as_node, self.cluster.ordered_clusters())]

    def name_of(self, row: Row) -> object:
        return row["name"]

    def task_of(self, _: Row) -> Row | None:
        """None: there may be many."""
        return None

    def node_of(self, row: Row) -> str | None:
        return str(row["name"])

    def _free_words(self, node: Row) -> str:
        """`4/8`; slices are counted apart: `1/2 + 3/4 slices`."""
        if not (gpus := self._divided.get(node["name"])):
            return look.free_words(node, self.cluster)
        parts, whole = ([gpu for gpu in gpus if bool(gpu.get("parent")) is part] for part in (True, False))
        kind = counted(len(parts), parts[0]["kind"])
        return f"{count(whole, 'free')}/{len(whole)} + {count(parts, 'free')}/{kind}"


_UNKNOWN = dict.fromkeys((
    "cores", "cores_busy", "memory_mib", "memory_used_mib", "temperature_c", "disk_used_mib", "disk_total_mib",
    "driver",
))  # fmt: skip
"""What is known of a node, but not of a cluster as a whole."""


def _as_node(cluster: Row) -> Row:
    """A cluster as a row beside nodes."""
    return {
        **_UNKNOWN,
        **cluster,
        "gpus": sum(cluster["gpus"].values()),
        "docker": cluster["engine"],
        "reason": cluster["reason"] or nodes_out(cluster),
        "labels": {},
    }


def _why(node: Row) -> Piece:
    labels = " ".join(f"{key}={value}" for key, value in node["labels"].items())
    return cause_of(node["name"], node["reason"]) or labels, "" if node["reason"] else "dim"
