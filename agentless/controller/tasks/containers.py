"""Engine commands on the containers of tasks."""

from __future__ import annotations

from agentless.controller.nodes.cluster_link import TaskLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.model.command import Command
from agentless.model.tasks.task import Task
from agentless.rules.tasks.reconcile import container_of


class Containers:
    """Runs engine commands, and looks at the container afterwards."""

    def __init__(self, nodes: Nodes, ledger: Ledger, lookup: Lookup) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._lookup = lookup

    async def do(self, link: TaskLink, task: Task, command: Command) -> None:
        """Run an engine command, then look: what the node reports afterwards decides."""
        await link.ready()
        result = await link.run(command)
        await link.look(task.id, link.runtime_of(task))
        if not result.ok and not self.is_over(task.id):
            link.runtime_of(task).check(result)

    def is_over(self, task_id: str) -> bool:
        """Whether a task has ended, even if the end cannot be written yet."""
        task = self._lookup.task(task_id)
        if not task.live or not self._ledger.stores.trouble or task.node not in self._nodes.every:
            return not task.live
        container = container_of(task, self._nodes.every[task.node].containers)
        return container is not None and container.over
