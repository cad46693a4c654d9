"""Tasks whose cluster waits for others in the place of our queue: they end here when that is in vain."""

from __future__ import annotations

from collections import defaultdict

from agentless.controller.guarded import guarded
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.prerequisites import Prerequisites
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Assigning, Blocked, Submitted, Task
from agentless.model.tasks.task_event import GaveUp, StopAsked
from agentless.model.tasks.task_id import first_try
from agentless.ports import Clock
from agentless.rules.tasks.dependencies import REMOVED, Standing, first_event


class AwaitedJobs:
    """Looks at them when something that they wait for has ended. Slurm cancels them itself, but does not say why."""

    def __init__(self, ledger: Ledger, prerequisites: Prerequisites, bus: EventBus, clock: Clock) -> None:
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._prerequisites = prerequisites
        self._clock = clock
        self._of: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Their ids, by what they wait for."""
        self._to_look: dict[str, None] = {}
        bus.subscribe(TaskChanged, self._changed)

    def start(self) -> None:
        """Look at all of them: an earlier controller may have stopped in between."""
        for task in self._tasks.live.values():
            if _waits_there(task):
                self._note(task)
                self._to_look[task.id] = None
        self.tick()

    def tick(self) -> None:
        """Look at those of which something has ended, and try again what could not be written."""
        with guarded("tasks that a cluster has wait for others"):
            stops = {key: stop for key in self._to_look if (stop := self._stop(key))}
            if stops:
                self._ledger.apply_all(
                    {key: (stop, "what it waited for cannot end as required any more") for key, stop in stops.items()}
                )
            self._to_look.clear()

    # ------------------------------------------------------------------ inside

    def _changed(self, event: TaskChanged) -> None:
        task = event.after
        if _waits_there(task):
            self._note(task)
            if not _waits_there(event.before):
                self._to_look[task.id] = None  # it was lost meanwhile
        elif isinstance(task.status, Blocked) and event.before.placement:  # it was refused, and waits here again
            self._prerequisites.touched[task.id] = None
        if not task.live and (waiting := self._of.pop(first_try(task.id), None)):
            self._to_look |= waiting
            self.tick()

    def _note(self, task: Task) -> None:
        for each in task.spec.terms.requires:
            if self._tasks.last_live(each.on):
                self._of[each.on][task.id] = None

    def _stop(self, task_id: str) -> StopAsked | None:
        task = self._tasks.live.get(task_id)
        if task is None or not _waits_there(task):
            return None
        event = first_event(task, task.spec.terms.requires, self._standing, self._clock.now())
        return StopAsked("stop", reason=event.reason) if isinstance(event, GaveUp) else None

    def _standing(self, requirement: Requirement) -> Standing:
        """That of a task; one that was removed had ended as required, or its end would have been told before."""
        found = self._prerequisites.standing(requirement)
        return Standing() if REMOVED in found.ends.values() else found


def _waits_there(task: Task) -> bool:
    placement = task.placement
    has_job = isinstance(task.status, Assigning | Submitted)
    return has_job and not task.stop and placement is not None and bool(placement.after)
