"""The command palette: commands, and everything that is known by a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from textual.command import CommandPalette, Hit, Hits, Provider
from textual.content import Content
from textual.markup import escape
from textual.screen import Screen
from textual.worker import Worker

from agentless.client.words import command_line, gpu_model, gpu_place, state
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState
from agentless.tui.screens.details.cluster import ClusterDetails
from agentless.tui.screens.details.gpu import GpuDetails
from agentless.tui.screens.details.node import NodeDetails
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.workflows.graph import WorkflowScreen

MOST = 20
"""The most hits of each kind."""
_AFTER = 0.99
"""A command that fits as well comes before."""

Found = tuple[str, str, Callable[[], Screen[None]]]
"""The words to match, what else to show, and what opens."""


class Palette(CommandPalette):
    """Textual's palette, which looks for commands even after Esc has closed it: that search fails, without an end."""

    def __init__(self) -> None:
        super().__init__(placeholder="Search tasks, nodes, GPUs, clusters, workflows and commands")

    def run_worker(self, work: Any, *args: Any, **options: Any) -> Worker[Any]:
        """Let a failed search not end the dashboard."""
        return super().run_worker(work, *args, **{**options, "exit_on_error": False})


class Everything(Provider):
    """Finds tasks, nodes, clusters, GPUs and workflows by any of their words."""

    async def search(self, query: str) -> Hits:
        words = query.lower().split()
        matchers = [self.matcher(word) for word in words]  # as commands are: else each with these letters comes before
        for kind in _kinds(self.app.cluster):  # type: ignore[attr-defined]
            fitting = (found for found in kind if all(word in f"{found[0]} {found[1]}".lower() for word in words))
            for title, more, screen in islice(fitting, MOST):
                score = _AFTER * sum(matcher.match(f"{title} {more}") for matcher in matchers)
                yield Hit(score, Content(printable(title)), partial(self._open, screen), title, escape(printable(more)))

    def _open(self, screen: Callable[[], Screen[None]]) -> None:
        self.app.push_screen(screen())


def _kinds(cluster: ClusterState) -> Iterator[Iterator[Found]]:
    """All that is known, live tasks first."""
    tasks = sorted(cluster.tasks.values(), key=lambda task: (task["ended_at"] is not None, task["id"]))
    yield (
        (
            f"{task['id']} {task['name'] or ''}".strip(),
            f"{state(task)}, {task['owner']}: {command_line(task)}",
            partial(TaskDetails, cluster, task),
        )
        for task in tasks
    )
    yield (
        (node["name"], f"node, {node['state']}, {node['address']}", partial(NodeDetails, cluster, node["name"]))
        for node in cluster.ordered_nodes()
    )
    yield (
        (each["name"], f"cluster, {each['state']}, {each['address']}", partial(ClusterDetails, cluster, each["name"]))
        for each in cluster.ordered_clusters()
    )
    yield (
        (gpu_place(gpu), f"{gpu_model(gpu)}, {gpu['state']}, {gpu['uuid']}", partial(GpuDetails, cluster, gpu))
        for gpu in cluster.ordered_gpus()
    )
    yield (
        (f"{each['id']} {each['name']}", f"workflow, {each['state']}", partial(WorkflowScreen, cluster, each["id"]))
        for each in cluster.workflows.values()
    )
