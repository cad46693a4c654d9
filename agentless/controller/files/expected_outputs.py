"""Outputs that tasks are to bring back: what is wanted, and its state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentless.controller.nodes.cluster_link import TaskLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus, OutputsSettled
from agentless.controller.state.tasks import Tasks
from agentless.model.files.file_spec import Output
from agentless.model.tasks.task import Ended, Task
from agentless.model.tasks.task_id import first_try, next_try
from agentless.model.units import format_size
from agentless.model.view import OutputView
from agentless.stores.files.outputs import Brought, ExpectedFiles, OutputStore

REMOVED = "its container was removed before the outputs were copied"
_NAMED = 3
"""Tasks that are named as those that are waited for."""


@dataclass
class Arriving:
    """Outputs in transfer from a node; `bytes` arrived so far. `artifacts` are those of artifacts, unpacked."""

    node: str
    bytes: int = 0
    artifacts: int = 0


class ExpectedOutputs:
    """The wanted outputs and their state.

    The fetcher records which outputs are `arriving`, and the `problems` of those that did not arrive.
    """

    def __init__(self, store: OutputStore, tasks: Tasks, nodes: Nodes, bus: EventBus) -> None:
        self.store = store
        self.arriving: dict[str, Arriving] = {}
        self.problems: dict[str, str] = {}
        self._tasks = tasks
        self._nodes = nodes
        self._bus = bus

    def __contains__(self, task: object) -> bool:
        """Whether outputs of this try are still to be fetched."""
        return task in self.store

    def want(self, task: Task) -> None:
        """Record the wanted outputs of a new task."""
        outputs = tuple(
            Output(each.path, each.local.replace("{id}", task.id), each.changed) for each in task.spec.outputs
        )
        self.store.want(task.id, ExpectedFiles(outputs, task.spec.uploads))

    def want_again(self, task: Task, outputs: tuple[Output, ...]) -> None:
        """Record the outputs of a recovered task, unless they are known. Those of its first try are over by then."""
        first = first_try(task.id)
        if self.store.wanted(first) is None:
            whole = tuple(replace(each, local=each.local.replace("{id}", first)) for each in outputs)
            self.store.want(first, ExpectedFiles(whole, ()))
        if task.id != first and not self._tasks.knows(task.id) and self.store.brought(first) is None:
            self.store.settle(first, [Brought(False, "another try followed") for _ in outputs])

    def settle(self, task: Task, brought: Iterable[Brought]) -> None:
        """Record what has become of the outputs of a try."""
        self.store.settle(task.id, brought)
        self._bus.emit(OutputsSettled(task))

    def forget(self, task: Task) -> None:
        """Fetch no outputs of this try any more; what is here stays."""
        first = first_try(task.id)
        others = [each for each in (first, next_try(task.id)) if each != task.id and self._tasks.knows(each)]
        if task.id != first or not others:  # what is wanted is kept with the first try, for all of them
            self.store.remove(task.id)
        if not others:
            self.store.remove(first)
        self.problems.pop(task.id, None)

    @property
    def waiting(self) -> bool:
        """Whether outputs of ended tasks are still to be fetched."""
        return any(task not in self._tasks.live for task in self.store.pending())

    def view(self, task: Task) -> tuple[OutputView, ...]:
        """The state of each output; empty for a task that only labels describe."""
        wanted = self.store.wanted(task.id)
        if wanted is None:
            return ()
        if brought := self.store.brought(task.id):
            return tuple(
                OutputView(o.path, o.local, "here" if b.here else "missing", b.words, b.files, b.bytes)
                for o, b in zip(wanted.outputs, brought, strict=True)
            )
        state, words = self._state(task)
        return tuple(OutputView(output.path, output.local, state, words, 0, 0) for output in wanted.outputs)

    def has_node(self, task: Task) -> bool:
        """Whether the node that has the outputs of a task is in the inventory."""
        return (task.node or "") in self._nodes.every

    def is_reachable(self, task: Task) -> bool:
        """Whether that node answers."""
        link = self._nodes.every.get(task.node or "")
        return link is not None and link.online

    def open(self, task: Task) -> bool:
        """Whether outputs of an ended task may still arrive."""
        return any(each.state in ("coming", "stuck") for each in self.view(task))

    def coming(self, task: Task) -> bool:
        """Whether one who waits for the task should wait for its outputs, too."""
        return any(each.state == "coming" for each in self.view(task))

    def lost(self, task: Task) -> str | None:
        """Why no outputs of an ended task will arrive, None if they may."""
        if not isinstance(task.status, Ended):
            return None
        if not task.status.container:
            return "the task never started"
        link = self._nodes.every.get(task.node or "")
        if link is None or link.silence is not None:
            return None
        there = any(container.id == task.status.container for container in link.containers)
        return None if there else REMOVED

    # ------------------------------------------------------------------ inside

    def _state(self, task: Task) -> tuple[str, str]:
        """The state of outputs that have not arrived, and the reason."""
        if not isinstance(task.status, Ended):
            return "waiting", "copied when the task ends"
        if (lost := self.lost(task)) is not None:
            return "missing", lost
        link = self._nodes.every.get(task.node or "")
        if link is None:
            return "stuck", f"{task.node} is no longer in the inventory"
        if not link.online and link.answered.is_set():
            return "stuck", f"copied when {link.node.name} is reachable again"
        if problem := self.problems.get(task.id):
            return "stuck", f"{problem}; retrying"
        if task.id in self.arriving:
            return "coming", f"copying{self._so_far(task.id)}"
        if words := self._in_front(link):
            return "coming", f"waiting for {words}"
        return "coming", "copying"

    def _in_front(self, link: TaskLink) -> str:
        """The tasks whose outputs this node sends at present, in words."""
        tasks = [task for task, coming in self.arriving.items() if coming.node == link.node.name]
        words = ", ".join(f"task {task}{self._so_far(task)}" for task in tasks[:_NAMED])
        return words and f"the outputs of {words}" + (f" and {more} more" if (more := len(tasks) - _NAMED) > 0 else "")

    def _so_far(self, task: str) -> str:
        return f" ({format_size(size)} so far)" if (size := self.arriving[task].bytes) else ""
