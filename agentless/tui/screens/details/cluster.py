"""A cluster in full."""

from __future__ import annotations

from agentless.client.words import cause_of, free_gpus, gpus_by_type, in_use, local, nodes_out, ran, where
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.node import NodeDetails
from agentless.tui.screens.details.parts import Part, beside, colour_of
from agentless.tui.widgets.lines import fitted

_MOST = 200
"""The most tasks, and the most nodes, that are listed."""


class ClusterDetails(Details):
    """A cluster: our tasks there, and its nodes as it has them."""

    KINDS = frozenset({"tasks", "clusters"})

    def __init__(self, cluster: ClusterState, name: str) -> None:
        super().__init__(cluster)
        self.about_node = name

    @property
    def about_task(self) -> None:
        """None: there may be many."""

    def cluster_changed(self, changed: set[str]) -> None:
        """Show what is known now, and ask for the nodes when something new is known of them."""
        super().cluster_changed(changed)
        if "clusters" in changed and self.is_mounted:
            self.ask()

    def on_mount(self) -> None:
        """Show what is known, and ask for the nodes."""
        self.cluster_changed(set(self.KINDS))

    def known(self) -> list[Part]:
        cluster = self.cluster.clusters.get(self.about_node)
        if cluster is None:
            return [f"{self.about_node} is no longer in the inventory"]
        runs, waits = self.cluster.jobs(self.about_node)
        parts: list[Part] = [
            (f"{cluster['name']}  ", "bold"),
            (cluster["state"], colour_of(cluster["state"])),
            f"  {printable(cause_of(cluster['name'], cluster['reason']))}\n\n",
        ]
        parts += beside(
            [
                ("address", cluster["address"]),
                ("engine", cluster["engine"]),
                ("GPUs", f"{gpus_by_type(cluster['gpus'])}, {cluster['gpus_free']} free"),
                ("allocated", gpus_by_type({kind: used for kind, used in cluster["gpus_used"].items() if used})),
                ("our tasks", f"{runs} running, {waits} pending"),
                ("nodes", f"{cluster['nodes']}"),
                ("out", nodes_out(cluster)),
                ("seen", local(cluster["asked_at"])),
            ],
            max(10, self.size.width - 3),
        )
        there = [task for task in self.cluster.tasks.values() if task["node"] == self.about_node]
        live = sorted((task for task in there if task["ended_at"] is None), key=lambda task: str(task["id"]))
        parts += [("\nTasks\n", "bold")] if live else []
        for task in live[:_MOST]:
            parts += [f"  {task['id']}  ", (f"{task['state']:10}", colour_of(task["state"]))]
            parts += [f"{where(task):16}  {ran(task):>14}  {printable(task['reason'] or '')}\n"]
        return parts

    def on_resize(self) -> None:
        """Draw for the new width."""
        super().cluster_changed(set(self.KINDS))

    def asked(self) -> list[Part]:
        found = self.get(f"/v1/clusters/{self.about_node}/nodes")
        if isinstance(found, str):
            return [found]
        names = max([4, *(len(node["name"]) for node in found[:_MOST])])
        parts: list[Part] = [("\nNodes\n", "bold")]
        parts += [(f"  {'':{names}}  {'FREE':>7}  {'GPUS':16}{'CORES':>9}{'MEMORY':>20}  STATE\n", "dim")]
        for node in found[:_MOST]:
            parts += _node(node, names)
        return [*parts, (f"  and {len(found) - _MOST} more\n", "dim")] if len(found) > _MOST else parts


def _node(node: Row, names: int) -> list[Part]:
    free = free_gpus(node) if node["gpus"] else "-"
    cores, held = f"{node['cores_used']}/{node['cores']}", in_use(node["memory_used_mib"], node["memory_mib"])
    reason = f": {node['reason']}" if node["reason"] else ""
    return [
        f"  {fitted(node['name'], names)}  ",
        (f"{free:>7}", "$text-success" if node["gpus_free"] else "dim"),
        f"  {fitted(gpus_by_type(node['gpus']), 16)}{cores:>9}{held:>20}  ",
        (f"{printable(node['state'] + reason)}\n", "$text-warning" if node["reason"] else ""),
    ]


def screen_of(cluster: ClusterState, name: str) -> Details:
    """The details of a node or a cluster."""
    return ClusterDetails(cluster, name) if name in cluster.clusters else NodeDetails(cluster, name)
