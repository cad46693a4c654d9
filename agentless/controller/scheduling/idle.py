"""Follows every sample for GPUs that their tasks leave idle: reports them, and by policy stops the task."""

from __future__ import annotations

from typing import TypeVar

from agentless.controller.guarded import guarded_item
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Core
from agentless.model.tasks.event import StopAsked
from agentless.model.tasks.task import Running, Task
from agentless.model.usage.idle import IdlePolicy
from agentless.rules.usage.idle import Still, Told, farewell, follow, idle_since, judge, words

Value = TypeVar("Value")


class IdleWatch:
    """Watches the tasks of this controller. `policy` is the inventory's."""

    def __init__(self, core: Core) -> None:
        self.policy = IdlePolicy()
        self._core = core
        self._still: dict[str, Still] = {}
        self._running: dict[str, float] = {}
        self._told: dict[str, Told] = {}
        core.sampled.append(self._sampled)

    def tick(self) -> None:
        """Look at each task that runs on GPUs."""
        now, tasks = self._core.clock.now(), [t for t in self._core.tasks.values() if isinstance(t.status, Running)]
        self._running = {task.id: self._running.get(task.id, now) for task in tasks}
        for task_id in self._told.keys() - self._running.keys():
            del self._told[task_id]
        for task_id in self._core.idle.keys() - self._running.keys():
            del self._core.idle[task_id]
        for task in tasks:
            if task.placement and task.placement.gpu_uuids:
                with guarded_item(f"task {task.id}: idle GPUs"):
                    self._look(task, now)

    # ------------------------------------------------------------------ inside

    def _sampled(self, link: NodeLink) -> None:
        name = link.node.name
        self._still[name] = follow(self._still.get(name, Still()), link.observation)

    def _look(self, task: Task, now: float) -> None:
        core, held = self._core, task.placement
        if held is None or not isinstance(task.status, Running):
            return
        since = max(self._running[task.id], task.status.started_at)
        found = idle_since(self._still.get(held.node, Still()), held, since, now)
        verdict = judge(found, held, self.policy, self._told.get(task.id), now)
        _put(self._told, task.id, verdict.told)
        _put(core.idle, task.id, verdict.idle)
        if verdict.what == "busy again":
            core.publish(task, "busy-again", "its GPUs are used again")
        elif verdict.idle and verdict.what == "report":
            core.publish(task, "idle", words(verdict.idle, held, now))
        elif verdict.idle and verdict.what == "stop" and not task.stop:
            core.apply(task.id, StopAsked("stop", reason=farewell(verdict.idle, now)), "the inventory")


def _put(known: dict[str, Value], task: str, value: Value | None) -> None:
    if value is None:
        known.pop(task, None)
    else:
        known[task] = value
