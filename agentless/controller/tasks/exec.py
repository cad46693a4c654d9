"""Interactive programs in the containers of running tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from agentless.controller.nodes.login import Login
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.program import Program, started
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.errors import NotFound, Refused
from agentless.gpus.vendors import GpuVendors
from agentless.model.caller import Caller
from agentless.model.tasks.task import Paused, Pending, Running, Scheduled, Task
from agentless.model.terminal import Attachment
from agentless.rules.tasks.entry import gate_of


class Terminals:
    """Opens programs. When the user leaves, for whatever reason, the node ends the program."""

    def __init__(self, nodes: Nodes, ledger: Ledger, lookup: Lookup, vendors: GpuVendors) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._lookup = lookup
        self._vendors = vendors

    @asynccontextmanager
    async def open(
        self, reference: str, command: Sequence[str], attached: Attachment, by: Caller
    ) -> AsyncIterator[Program]:
        """Run a command (none: a shell) in the container of a task."""
        task, link = self._running(reference)
        async with started(link, task.container_ref, command, attached) as program:
            self._ledger.publish(task, "shell-opened", f"agentless shell, by {by}")
            yield program

    @asynccontextmanager
    async def log_in(self, reference: str, by: Caller) -> AsyncIterator[Login]:
        """Let somebody run any number of programs in the container of a task."""
        task, link = self._running(reference)
        gate = gate_of(task, ours=self._lookup.is_ours(task))
        opened = partial(self._ledger.publish, task, "ssh-opened", f"agentless ssh, by {by}")
        yield Login(link, task.container_ref, opened, gate)

    def is_task(self, reference: str) -> bool:
        """Whether there is such a task."""
        try:
            self._lookup.find(reference)
        except NotFound:
            return False
        return True

    def _running(self, reference: str) -> tuple[Task, NodeLink]:
        """The task and its node; raises Refused if nothing can be run in it."""
        task = self._lookup.find(reference)
        if not isinstance(task.status, Running):
            raise Refused(_why_unreachable(task))
        link = self._nodes.link_of(task)
        if link.runtime_of(task).terminal is None:
            variables = self._vendors.by_hand(task.status.placement.devices)
            raise Refused(
                f"task {task.id} has no container for a shell (--container NULL); log in to {link.node.name} and set "
                f"{variables}"
            )
        return task, link


def _why_unreachable(task: Task) -> str:
    """Why nothing can be run in a task, and what helps."""
    words = f"task {task.id} is {task.state}: a shell needs a running task"
    if task.spec.traits.comes_back and not task.live:
        return f"VPS {task.spec.name} is {task.state}; to start it, run: agentless vps start {task.spec.name}"
    if isinstance(task.status, Paused):
        return f"{words}; to go on, run: agentless resume {task.id}"
    if isinstance(task.status, (Pending, Scheduled)):
        return f"{words}; to see why it waits, run: agentless explain {task.id}"
    return words
