"""Stops VPS that have expired or that nobody uses, after a warning."""

from __future__ import annotations

from agentless.controller.guarded import guarded_item
from agentless.controller.nodes.visits import Visits
from agentless.controller.state.ledger import Ledger
from agentless.controller.vps.activity import Activity
from agentless.model.tasks.task import Running, Task
from agentless.model.tasks.task_event import StopAsked
from agentless.ports import Clock
from agentless.rules.tasks.ending import ending_of, judge


class Upkeep:
    """Looks at all VPS that run. Those who have logged in to one are told."""

    def __init__(self, ledger: Ledger, activity: Activity, visits: Visits, clock: Clock) -> None:
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._activity = activity
        self._tell = visits.tell
        self._clock = clock
        self._warned: dict[str, float] = {}

    def tick(self) -> None:
        """Warn and stop those that are due."""
        running = [
            task
            for task in self._tasks.live.values()
            if isinstance(task.status, Running) and (task.spec.terms.expires or task.spec.terms.idle_stop)
        ]
        self._activity.tick(task for task in running if task.spec.terms.idle_stop)
        known = {task.id for task in running}
        self._warned = {key: at for key, at in self._warned.items() if key in known}
        self._tasks.endings = {key: ending for key, ending in self._tasks.endings.items() if key in known}
        for task in running:
            with guarded_item(f"VPS {task.spec.name}: its end"):
                self._look(task)

    def _look(self, task: Task) -> None:
        if not isinstance(task.status, Running) or task.stop:
            return
        now, name = self._clock.now(), task.spec.name
        ending = ending_of(task.spec.terms, task.status.started_at, self._activity.idle_since(task))
        verdict = judge(ending, self._warned.pop(task.id, None), now)
        if verdict.warned_at is not None:
            self._warned[task.id] = verdict.warned_at
        if ending is None:
            self._tasks.endings.pop(task.id, None)
        else:
            self._tasks.endings[task.id] = ending
        if verdict.what == "go on":
            self._ledger.publish(task, "goes-on", "it is used again")
            self._tell(task.id, f"{name} goes on: it is used again")
        elif ending and verdict.what == "warn":
            self._ledger.publish(task, "stops-soon", ending.words(now))
            self._tell(task.id, f"{name} {ending.words(now)}; its files stay")
        elif ending and verdict.what == "stop":
            self._tell(task.id, f"{name} stops now ({ending.why}); to start it: agentless vps start {name}")
            self._ledger.apply(task.id, StopAsked("stop", reason=ending.why), ending.why)
