"""Admission of new tasks: placed, queued, scheduled for later, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from agentless.controller.files.expected_outputs import ExpectedOutputs
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.errors import AgentlessError, Refused, Unreachable
from agentless.model.caller import Caller
from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.task_event import Assigned, Delayed, Queued, TaskEvent
from agentless.model.view import StartView
from agentless.ports import Clock
from agentless.rules.explain.obstacles import never, refusal
from agentless.rules.scheduling.plan import amounts_of
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.tasks.gangs import by_gang

_Why = TypeVar("_Why")


class Admission:
    """Admits tasks into the ledger, or says why not."""

    def __init__(self, nodes: Nodes, ledger: Ledger, outputs: ExpectedOutputs, clock: Clock) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._outputs = outputs
        self._clock = clock

    def is_for_later(self, task: Task) -> bool:
        """Whether the start time of a task has not come yet."""
        return (task.spec.terms.start_at or 0.0) > self._clock.now()

    def admit(
        self, tasks: Sequence[Task], placements: Mapping[str, Placement], secrets: Mapping[str, str], by: Caller
    ) -> list[AgentlessError | None]:
        """Add tasks, placed or queued, in one write; returns for each why it is refused, None if it is not."""
        refused = self._reasons([task for task in tasks if task.id not in placements], self._turned_away)
        refused = _of_whole_gangs(tasks, refused)
        kept = [task for task in tasks if not refused.get(task.id)]
        events = [(task, self._first(task, placements.get(task.id))) for task in kept]
        begun = {task.id for task in kept if task.id in placements}
        try:
            for task in kept:
                self._ledger.stores.secrets.put(task.id, secrets)
                self._outputs.want(task)
            self._tasks.launching.update(begun)
            owner = kept[0].owner if kept else by.name
            self._ledger.add_all(events, f"submitted by {by}" + (f" for {owner}" if owner != by.name else ""))
        except AgentlessError as error:
            self._tasks.launching.difference_update(begun)
            for task in kept:
                self._ledger.stores.secrets.remove(task.id)
                self._outputs.forget(task)
            return [refused.get(task.id) or error for task in tasks]
        return [refused.get(task.id) for task in tasks]

    def rehearse(
        self, tasks: Iterable[Task], placements: Mapping[str, Placement], secrets: Mapping[str, str]
    ) -> list[StartView]:
        """A dry run: what would happen to these tasks."""
        waits = self._reasons([task for task in tasks if task.id not in placements], self._waits)
        return [self._rehearse(task, placements.get(task.id) or waits[task.id], secrets) for task in tasks]

    # ------------------------------------------------------------------ inside

    def _rehearse(self, task: Task, found: Placement | tuple[int, str], secrets: Mapping[str, str]) -> StartView:
        target = str(task.spec.needs)
        if isinstance(found, tuple):
            return StartView(target, None, *found)
        link = self._nodes.link(found.node)
        command = link.runtime_of(task).launches([link.launch(task, found, secrets)])
        return StartView(target, None, 0, "", command.text(masked=True), str(found))

    def _waits(self, cluster: Cluster, task: Task) -> tuple[int, str]:
        """The exit code and the reason for a task that would not start now."""
        if error := self._turned_away(cluster, task):
            return error.exit_code, str(error)
        until = "until its start time" if self.is_for_later(task) else str(_refusal(cluster, task))
        return 0, f"would be pending: {until}"

    def _reasons(self, tasks: Iterable[Task], why: Callable[[Cluster, Task], _Why]) -> dict[str, _Why]:
        """For each task the reason why it does not start; found once for all that are alike in that respect."""
        cluster, found, reasons = self._nodes.cluster(), dict[object, _Why](), dict[str, _Why]()
        for task in tasks:
            nodes = task.spec.gang.alike if task.spec.gang else 1
            alike = shape_of(task.spec, task.owner), amounts_of(task), task.spec.terms, nodes
            if alike not in found:
                found[alike] = why(cluster, task)
            reasons[task.id] = found[alike]
        return reasons

    def _first(self, task: Task, placement: Placement | None) -> TaskEvent:
        if self.is_for_later(task):
            return Delayed(task.spec.terms.start_at or 0.0)
        return Assigned(placement) if placement else Queued()

    def _turned_away(self, cluster: Cluster, task: Task) -> AgentlessError | None:
        """Why a task that does not start now is not queued either, None if it is."""
        if words := never(cluster, task.spec, task.owner):
            return Refused(words)
        if self.is_for_later(task):
            return None
        error = _refusal(cluster, task)
        return error if task.spec.terms.wait_for == 0 or isinstance(error, Unreachable) else None


def _of_whole_gangs(
    tasks: Sequence[Task], refused: Mapping[str, AgentlessError | None]
) -> dict[str, AgentlessError | None]:
    """Who is refused: all members of a gang, if one is."""
    found = dict(refused)
    for members in by_gang(tasks).values():
        if error := next(filter(None, (refused.get(task.id) for task in members)), None):
            found |= {task.id: error for task in members}
    return found


def _refusal(cluster: Cluster, task: Task) -> AgentlessError:
    found = refusal(cluster, task.spec, task.owner)
    return found or Refused(f"{task.spec.needs}: free resources are assigned or promised to tasks ahead of it")
