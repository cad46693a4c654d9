"""Watches for tasks that leave their GPUs idle: reports them, and stops them if the policy says so."""

from __future__ import annotations

from typing import TypeVar

from agentless.controller.guarded import guarded_item
from agentless.controller.state.event_bus import EventBus, NodeObserved
from agentless.controller.state.ledger import Ledger
from agentless.inventory.inventory import Inventory
from agentless.model.tasks.task import Running, Task
from agentless.model.tasks.task_event import StopAsked
from agentless.model.usage.idle import IdlePolicy
from agentless.ports import Clock
from agentless.rules.usage.idle import IdleReport, Still, farewell, follow, idle_since, judge, words

Value = TypeVar("Value")


class IdleWatch:
    """Watches the running tasks. `policy` is the inventory's."""

    def __init__(self, ledger: Ledger, bus: EventBus, clock: Clock) -> None:
        self.policy = IdlePolicy()
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._clock = clock
        self._still: dict[str, Still] = {}
        self._running: dict[str, float] = {}
        self._reports: dict[str, IdleReport] = {}
        bus.subscribe(NodeObserved, self._observed)

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its idle policy."""
        self.policy = inventory.idle

    def tick(self) -> None:
        """Check each task that runs on GPUs."""
        now, tasks = self._clock.now(), [t for t in self._tasks.live.values() if isinstance(t.status, Running)]
        self._running = {task.id: self._running.get(task.id, now) for task in tasks}
        for task_id in self._reports.keys() - self._running.keys():
            del self._reports[task_id]
        for task_id in self._tasks.idle.keys() - self._running.keys():
            del self._tasks.idle[task_id]
        for task in tasks:
            if task.placement and task.placement.gpu_uuids:
                with guarded_item(f"task {task.id}: idle GPUs"):
                    self._look(task, now)

    def idle_since(self, task: Task) -> float | None:
        """Since when all GPUs of a running task are idle, 0 if it has none; None if they are used, or if unknown."""
        held = task.placement
        if held is None or not held.gpu_uuids:
            return 0.0
        still, now = self._still.get(held.node, Still()), self._clock.now()
        found = idle_since(still, held, self._running.get(task.id, now), now)
        return max(found.values()) if found is not None and len(found) == len(held.gpu_uuids) else None

    # ------------------------------------------------------------------ inside

    def _observed(self, seen: NodeObserved) -> None:
        self._still[seen.node] = follow(self._still.get(seen.node, Still()), seen.observation)

    def _look(self, task: Task, now: float) -> None:
        held = task.placement
        if held is None or not isinstance(task.status, Running):
            return
        since = max(self._running[task.id], task.status.started_at)
        found = idle_since(self._still.get(held.node, Still()), held, since, now)
        verdict = judge(found, held, self.policy, self._reports.get(task.id), now)
        _put(self._reports, task.id, verdict.report)
        _put(self._tasks.idle, task.id, verdict.idle)
        if verdict.what == "busy again":
            self._ledger.publish(task, "busy-again", "its GPUs are busy again")
        elif verdict.idle and verdict.what == "report":
            self._ledger.publish(task, "idle", words(verdict.idle, held, now))
        elif verdict.idle and verdict.what == "stop" and not task.stop:
            self._ledger.apply(
                task.id, StopAsked("stop", reason=farewell(verdict.idle, now)), "idle rule of the inventory"
            )


def _put(known: dict[str, Value], task: str, value: Value | None) -> None:
    if value is None:
        known.pop(task, None)
    else:
        known[task] = value
