"""Interactive programs in running tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from agentless.controller.nodes.endings import Endings
from agentless.controller.nodes.login import Login
from agentless.controller.nodes.program import Place, Program, started
from agentless.controller.nodes.registry import Nodes
from agentless.controller.nodes.visits import Visits
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.errors import NotFound, Refused
from agentless.gpus.vendors import GpuVendors
from agentless.model.caller import Caller
from agentless.model.containers.job_id import login_node
from agentless.model.tasks.task import Paused, Running, Task, Waiting
from agentless.model.tasks.task_id import numbered
from agentless.model.terminal import Attachment
from agentless.rules.tasks.entry import gate_of


class Terminals:
    """Opens programs. When the user leaves, for whatever reason, the node ends the program."""

    def __init__(
        self, nodes: Nodes, ledger: Ledger, lookup: Lookup, vendors: GpuVendors, visits: Visits, bus: EventBus
    ) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._lookup = lookup
        self._vendors = vendors
        self._visits = visits
        self._paused: set[str] = set()
        self._endings = Endings(self._paused.__contains__)
        for task in ledger.tasks.live.values():
            self._note(task)
        bus.subscribe(TaskChanged, self._changed)

    @asynccontextmanager
    async def open(
        self, reference: str, command: Sequence[str], attached: Attachment, by: Caller
    ) -> AsyncIterator[Program]:
        """Run a command (none: a shell) in the container of a task, or beside it if it has none."""
        task, place = self._running(reference)
        async with started(place, command, attached) as program:
            self._ledger.publish(task, "shell-opened", f"agentless shell, by {by}")
            with self._visits.entered(task.id, lambda _: None):
                yield program

    @asynccontextmanager
    async def log_in(self, reference: str, by: Caller) -> AsyncIterator[Login]:
        """Let somebody run any number of programs there."""
        task, place = self._running(reference)
        gate = gate_of(task, ours=self._lookup.is_ours(task))
        login = Login(place, partial(self._tell, task.id, by), gate)
        with self._visits.entered(task.id, login.show):
            yield login

    def on_login_node(self, cluster: str) -> Login:
        """The same on the login node of a cluster, beside all tasks."""
        link = self._nodes.cluster_link(cluster)
        return Login(Place(link, link.runtime, login_node(cluster), self._endings), lambda *_: None)

    def is_task(self, reference: str) -> bool:
        """Whether there is such a task."""
        try:
            self._lookup.find(reference)
        except NotFound:
            return False
        return True

    def _running(self, reference: str) -> tuple[Task, Place]:
        """The task, and where its programs run; raises Refused if nothing can be run there."""
        task = self._lookup.find(reference)
        if not isinstance(task.status, Running):
            raise Refused(_why_unreachable(task))
        link = self._nodes.link_of(task)
        variables: Mapping[str, str] = {}
        if task.spec.on_node_itself:
            # Its process has them, too, but may have overwritten them.
            variables = self._vendors.injection("systemd", task.status.placement.devices).environment
        return task, Place(link, link.runtime_of(task), task.container_ref, self._endings, variables)

    def _tell(self, task_id: str, by: Caller, event: str, words: str) -> None:
        """Publish something about a login; nothing once the task has been removed."""
        with suppress(NotFound):
            self._ledger.publish(self._lookup.find(numbered(task_id)), event, f"agentless ssh, by {by}: {words}")

    def _changed(self, change: TaskChanged) -> None:
        was = change.before.container_ref
        if self._note(change.after) or was not in self._paused:
            return
        self._paused.discard(was)
        self._endings.changed(was)

    def _note(self, task: Task) -> bool:
        """Remember the container if it is paused."""
        paused = isinstance(task.status, Paused)
        if paused:
            self._paused.add(task.container_ref)
        return paused


def _why_unreachable(task: Task) -> str:
    """Why nothing can be run in a task, and what helps."""
    words = f"task {task.id} is {task.state}; only running tasks can be entered"
    if task.spec.traits.comes_back and not task.live:
        return f"VPS {task.spec.name} is {task.state}; to start it, run: agentless vps start {task.spec.name}"
    if isinstance(task.status, Paused):
        return f"{words}; to go on, run: agentless resume {task.id}"
    if isinstance(task.status, Waiting):
        return f"{words}; to see why it waits, run: agentless explain {task.id}"
    return words
