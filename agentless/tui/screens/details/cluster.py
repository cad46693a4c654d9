"""A cluster in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from agentless.client.words import cause_of, free_gpus, gpus_by_type, in_use, local, nodes_out, ran, state, where, why
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.node import NodeDetails
from agentless.tui.screens.details.parts import Part, beside, colour_of
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.view import TaskListView
from agentless.tui.widgets import look
from agentless.tui.widgets.ending import EndingScroll
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.hanging import Hanging
from agentless.tui.widgets.lines import fitted
from agentless.tui.widgets.table import Table, TableColumn

_MOST = 200
"""The most nodes that are listed."""
_AROUND = 2
"""The lines of a table of tasks beside its rows: the titles, and which columns are hidden."""


class ClusterTasks(TaskListView):
    """A row for each live task on the cluster."""

    KINDS = frozenset({"tasks"})

    def __init__(self, cluster: ClusterState, name: str) -> None:
        self._name_of_cluster = name
        super().__init__(cluster, id="tasks_there")

    def columns(self) -> Sequence[TableColumn]:
        return (
            TableColumn("ID", lambda task: task["id"]),
            TableColumn("STATE", lambda task: (state(task), look.style_of(task["state"]))),
            TableColumn("WHERE", where),
            TableColumn("TIME", ran, right=True),
            TableColumn("OWNER", lambda task: task["owner"], rank=2),
            TableColumn("NAME", lambda task: task["name"] or "", rank=1),
            TableColumn("REASON", why, flexible=True),
        )

    def all_rows(self) -> list[Row]:
        there = (task for task in self.cluster.tasks.values() if task["node"] == self._name_of_cluster)
        return sorted((task for task in there if task["ended_at"] is None), key=lambda task: str(task["id"]))

    def action_clear(self) -> None:
        """Clear the filter; without one, leave."""
        if self.is_filtered:
            super().action_clear()
        else:
            self.app.pop_screen()


class ClusterDetails(Details):
    """A cluster: our tasks there, and its nodes as it has them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "Nodes", tooltip="go to the nodes, or back to the tasks"),
    ]
    CSS = """
    ClusterDetails > #known { height: auto; padding: 0 1; }
    ClusterDetails > ClusterTasks { padding: 0 1; }
    ClusterDetails > EndingScroll { height: 1fr; }
    """
    KINDS = frozenset({"tasks", "clusters"})

    def __init__(self, cluster: ClusterState, name: str) -> None:
        super().__init__(cluster)
        self.about_node = name
        self.tasks = ClusterTasks(cluster, name)
        self._asked_about = self._about()

    def compose(self) -> ComposeResult:
        yield Hanging(id="known")
        yield self.tasks
        with EndingScroll():
            yield Hanging(id="asked")
        yield KeyLine()

    @property
    def about_task(self) -> Row | None:
        """The chosen task."""
        return self.tasks.about_task

    def on_table_opened(self, message: Table.Opened) -> None:
        """Show the chosen task in full."""
        message.stop()
        if task := self.about_task:
            self.app.push_screen(TaskDetails(self.cluster, task))

    def cluster_changed(self, changed: set[str]) -> None:
        """Show what is known now, and ask for the nodes when something new is known of them."""
        super().cluster_changed(changed)
        if changed & self.KINDS and self.is_mounted:
            self._lay_out()
        if "clusters" in changed and self.is_mounted and (about := self._about()) != self._asked_about:
            self._asked_about = about
            self.ask()

    def on_mount(self) -> None:
        """Begin with the tasks, if there are any."""
        self._lay_out()
        self.set_focus(self.tasks.table.body if self.tasks.display else self.query_one(EndingScroll))

    def _about(self) -> Row:
        """What is known of the cluster, without the time: each answer has a new one."""
        return self.cluster.clusters.get(self.about_node, {}) | {"asked_at": None}

    def _lay_out(self) -> None:
        """Show the tasks in the lines that they need, half of the screen at most."""
        self.tasks.update()
        count = len(self.tasks.all_rows())
        self.tasks.display = bool(count)
        self.tasks.styles.height = min(count + _AROUND, max(_AROUND + 1, self.size.height // 2))

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
        return parts

    def on_resize(self) -> None:
        """Draw for the new width."""
        super().cluster_changed(set(self.KINDS))
        self._lay_out()

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
