"""Admission of new tasks: placed, queued, scheduled for later, or refused."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from agentless.controller.files.expected_outputs import ExpectedOutputs
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.overflows import Overflows
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.dependencies import Dependencies
from agentless.errors import AgentlessError, Refused, Unreachable
from agentless.model.caller import Caller
from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import unreachable
from agentless.model.tasks.task import Placement, Task
from agentless.model.tasks.task_event import Assigned, Delayed, GaveUp, Queued, TaskEvent
from agentless.model.view import StartView
from agentless.ports import Clock
from agentless.rules.explain.obstacles import never, refusal
from agentless.rules.explain.waits import waits_for
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.scheduling.wants import amounts_of
from agentless.rules.tasks.gangs.gangs import by_gang

_Why = TypeVar("_Why")

_REMEDY = "retry that one first, or use --if-impossible wait"


class Admission:
    """Admits tasks into the ledger, or says why not."""

    def __init__(
        self,
        nodes: Nodes,
        overflows: Overflows,
        ledger: Ledger,
        dependencies: Dependencies,
        outputs: ExpectedOutputs,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._overflows = overflows
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._dependencies = dependencies
        self._outputs = outputs
        self._clock = clock

    def may_start(self, tasks: Sequence[Task]) -> list[Task]:
        """Those of these new tasks that wait neither for a time nor for other tasks."""
        blocked = self._dependencies.first(tasks)
        return [task for task in tasks if task.id not in blocked and not self._is_for_later(task)]

    def turned_away(self, tasks: Sequence[Task], placements: Mapping[str, Placement]) -> list[AgentlessError | None]:
        """For each of these new tasks why it is refused itself, None if it is not."""
        blocked = self._dependencies.first(tasks)
        refused = self._reasons([task for task in tasks if task.id not in placements], blocked, self._turned_away)
        return [refused.get(task.id) for task in tasks]

    def admit(
        self, tasks: Sequence[Task], placements: Mapping[str, Placement], secrets: Mapping[str, str], by: Caller
    ) -> list[AgentlessError | None]:
        """Add tasks, placed or queued, in one write; returns for each why it is refused, None if it is not."""
        refused = _of_whole_gangs(tasks, self._refused(tasks, placements))
        kept = [task for task in tasks if not refused.get(task.id)]
        blocked = self._dependencies.first(kept)
        events = [(task, blocked.get(task.id) or self._first(task, placements.get(task.id))) for task in kept]
        begun = {task.id for task in kept if task.id in placements}
        try:
            for task in kept:
                own = {name: secrets[name] for name in task.spec.secret_env if name in secrets}
                self._ledger.stores.secrets.put(task.id, own)
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
        self, tasks: Sequence[Task], placements: Mapping[str, Placement], secrets: Mapping[str, str]
    ) -> list[StartView]:
        """A dry run: what would happen to these tasks."""
        blocked = self._dependencies.first(tasks)
        waits = self._reasons([task for task in tasks if task.id not in placements], blocked, self._waits)
        for task_id, event in blocked.items():
            if isinstance(event, GaveUp) and not waits[task_id][0]:
                waits[task_id] = Refused.exit_code, f"{event.reason}; {_REMEDY}"
        return [self._rehearse(task, placements.get(task.id) or waits[task.id], secrets) for task in tasks]

    # ------------------------------------------------------------------ inside

    def _rehearse(self, task: Task, found: Placement | tuple[int, str], secrets: Mapping[str, str]) -> StartView:
        target = str(task.spec.needs)
        if isinstance(found, tuple):
            return StartView(target, None, *found)
        link = self._nodes.place(found.node)
        command = link.runtime_of(task).launches([link.launch(task, found, secrets)])
        return StartView(target, None, 0, "", command.text(masked=True), str(found))

    def _waits(self, cluster: Cluster, task: Task, is_blocked: bool) -> tuple[int, str]:
        """The exit code and the reason for a task that would not start now."""
        if error := self._turned_away(cluster, task, is_blocked):
            return error.exit_code, str(error)
        if is_blocked:
            return 0, f"would be blocked: {waits_for(task.spec.terms.requires)}"
        until = "until its start time" if self._is_for_later(task) else str(_refusal(cluster, task))
        return 0, f"would be pending: {until}"

    def _refused(self, tasks: Sequence[Task], placements: Mapping[str, Placement]) -> dict[str, AgentlessError | None]:
        """The tasks that are not admitted, and why; others may have None."""
        blocked = self._dependencies.first(tasks)
        refused = self._reasons([t for t in tasks if t.id not in placements], blocked, self._turned_away)
        for task_id, event in self._dependencies.first(tasks, refused).items():
            if isinstance(event, GaveUp) and not refused.get(task_id):
                refused[task_id] = Refused(f"{event.reason}; {_REMEDY}")
        return refused

    def _reasons(
        self, tasks: Iterable[Task], blocked: Container[str], why: Callable[[Cluster, Task, bool], _Why]
    ) -> dict[str, _Why]:
        """For each task the reason why it does not start; found once for all that are alike in that respect."""
        cluster, found, reasons = self._nodes.cluster(), dict[object, _Why](), dict[str, _Why]()
        for task in tasks:
            terms, is_blocked = replace(task.spec.terms, requires=()), task.id in blocked
            nodes = task.spec.gang.alike if task.spec.gang else 1
            alike = shape_of(task.spec, task.owner), amounts_of(task), terms, is_blocked, nodes
            if alike not in found:
                found[alike] = why(cluster, task, is_blocked)
            reasons[task.id] = found[alike]
        return reasons

    def _is_for_later(self, task: Task) -> bool:
        """Whether our queue keeps a task until its start time. A cluster that answers keeps it itself."""
        if (task.spec.terms.start_at or 0.0) <= self._clock.now():
            return False
        place = self._nodes.cluster_of(task.spec.needs)
        return place is None or place.silence is not None

    def _first(self, task: Task, placement: Placement | None) -> TaskEvent:
        if self._is_for_later(task):
            return Delayed(task.spec.terms.start_at or 0.0)
        return Assigned(placement) if placement else Queued()

    def _turned_away(self, cluster: Cluster, task: Task, is_blocked: bool) -> AgentlessError | None:
        """Why a task that does not start now is not queued either, None if it is."""
        if place := self._nodes.cluster_of(task.spec.needs):
            away = Unreachable(unreachable(place.node.name, place.silence)) if place.silence else None
            return None if is_blocked or self._is_for_later(task) else away
        if self._overflows.may_go(task.spec):
            return None
        if words := never(cluster, task.spec, task.owner):
            return Refused("; ".join(filter(None, (words, self._overflows.words(task, None)))))
        if is_blocked or self._is_for_later(task):
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
