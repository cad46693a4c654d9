"""Stops tasks: the request is stored first, and carried out when the node can be reached."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from agentless.controller.nodes.cluster_link import ANSWER_WITHIN, TaskLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.controller.tasks.containers import Containers
from agentless.errors import NoAnswer, RuntimeFailed, StateError, Unreachable
from agentless.model.caller import Caller
from agentless.model.command import Command
from agentless.model.nodes.node import unreachable
from agentless.model.tasks.task import Ended, Paused, Running, StopKind, Submitted, Task, Waiting
from agentless.model.tasks.task_event import StopAsked
from agentless.ports import Clock
from agentless.rules.tasks.due import within_limit
from agentless.rules.tasks.reconcile import LAUNCH_BOUND

FOREIGN_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL for what this controller did not start, unless who asks says otherwise."""
KILL_WITHIN = 15.0
"""Seconds after SIGKILL in which the engine has to report the end."""


class Stops:
    """Stops tasks."""

    def __init__(
        self, containers: Containers, nodes: Nodes, ledger: Ledger, lookup: Lookup, bus: EventBus, clock: Clock
    ) -> None:
        self._containers = containers
        self._nodes = nodes
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._lookup = lookup
        self._bus = bus
        self._clock = clock
        self._stopping: Counter[str] = Counter()

    async def stop(self, reference: str, how: StopKind, grace: float | None = None, *, by: Caller) -> Task:
        """Stop a task: SIGTERM, the grace time in seconds (None: as submitted), SIGKILL; `kill` is SIGKILL at once.

        With one member of a gang all are stopped.
        """
        task = self._lookup.find(reference)
        results = await asyncio.gather(
            *(self.ask(each, how, grace, by=by) for each in self._lookup.gang(task)), return_exceptions=True
        )
        if failed := next((each for each in results if isinstance(each, BaseException)), None):
            raise failed
        return next(each for each in results if isinstance(each, Task) and each.id == task.id)

    async def ask(self, task: Task, how: StopKind, grace: float | None = None, *, by: Caller) -> Task:
        """Stop this task, likewise."""
        if isinstance(task.status, Ended):
            return task
        if task.id in self._tasks.live:
            # Saved before anything is sent: a stop survives the controller, and wins over a start under way.
            task = self._ledger.apply(task.id, StopAsked(how, grace), f"agentless {how}, by {by}")
        else:
            self._ledger.publish(task, "stop-asked", f"agentless {how}, by {by}")
            grace = FOREIGN_GRACE if grace is None else grace  # what its labels say may be a year
        if isinstance(task.status, Waiting):
            if why := self._ledger.stores.troubles.get("stops"):
                raise StateError(f"{why}; task {task.id} does not start, and ends when this can be written")
            return task  # its end cannot be written yet, and it does not start
        try:
            # After that time, the stop goes on by itself.
            return await self._end(task, how, grace, ANSWER_WITHIN if task.node in self._nodes.clusters else None)
        except NoAnswer as error:
            if task.id not in self._tasks.live:
                raise
            raise Unreachable(f"{error}; agentless ends task {task.id} when {task.node} answers") from None

    async def preempt(self, gang: Sequence[Task], reason: str) -> None:
        """Let a task, or all of a gang, give way: SIGTERM, the grace time, SIGKILL. None may be stopping already."""
        asked, cause = StopAsked("preempt", reason=reason), f"preempted: {reason}"
        tasks = self._ledger.apply_all({task.id: (asked, cause) for task in gang})
        await asyncio.gather(*(self._end(task, "preempt", None) for task in tasks))

    def resume(self) -> list[Coroutine[Any, Any, Task]]:
        """The work left for stops that were requested but not carried out.

        An earlier controller got them, or they came before a start, or could not be written.
        """
        asked = [task for task in self._tasks.live.values() if task.stop and not self._stopping[task.id]]
        for task in asked:
            if task.stop and isinstance(task.status, Waiting) and not self._ledger.stores.trouble:
                self._ledger.apply(task.id, StopAsked(task.stop), "disk space is available again")
        return [
            self._end(task, task.stop, task.grace)
            for task in asked
            if task.stop
            and isinstance(task.status, (Running, Paused, Submitted))
            and not self._containers.is_over(task.id)
        ]

    # ------------------------------------------------------------------ inside

    async def _end(self, task: Task, how: StopKind, grace: float | None, within: float | None = None) -> Task:
        """Send the signals, and wait for the end. `grace` None: as submitted.

        Raises NoAnswer if the node does not take a signal `within` so many seconds.
        """
        self._stopping[task.id] += 1
        try:
            return await self._signal(task, how, task.spec.stop_grace if grace is None else grace, within)
        finally:
            self._stopping[task.id] -= 1
            self._stopping += Counter()  # without those at 0

    async def _signal(self, task: Task, how: StopKind, grace: float, within: float | None) -> Task:
        if task.live and not task.container:
            task = await self._launched(task)
        if isinstance(task.status, Ended):
            return task
        link = self._nodes.link_of(task)
        runtime = link.runtime_of(task)
        gentle = task.spec.terms.signal if how == "timeout" else "TERM"
        if how != "kill":
            if isinstance(task.status, Paused):
                await self._sent(link, task, runtime.resume(task.container_ref), within)
            await self._sent(link, task, runtime.signal(task.container_ref, gentle), within)
            most = within_limit(task, grace, self._clock.now()) if how == "stop" else grace
            task = await self._ended(task, most)
        if not self._is_over(task):
            await self._sent(link, task, runtime.signal(task.container_ref, "KILL"), within)
            task = await self._ended(task, KILL_WITHIN)
        if not self._is_over(task):
            raise RuntimeFailed(
                f"task {task.id} still runs on {link.node.name} {KILL_WITHIN:.0f} s after SIGKILL; check the node"
            )
        return task

    async def _sent(self, link: TaskLink, task: Task, command: Command, within: float | None) -> None:
        try:
            async with asyncio.timeout(within):
                await self._containers.do(link, task, command)
        except TimeoutError:
            raise NoAnswer(f"{link.node.name} does not answer") from None

    async def _ended(self, task: Task, within: float) -> Task:
        await self._bus.until(lambda: self._is_over(task), within)
        return self._lookup.task(task.id)

    def _is_over(self, task: Task) -> bool:
        """Whether the run that was to be stopped is over: a VPS may have been started again since."""
        now = self._tasks.live.get(task.id)
        is_another = now is not None and task.spec.traits.comes_back and now.stop is None
        return is_another or self._containers.is_over(task.id)

    async def _launched(self, task: Task) -> Task:
        """Wait until the launch of a task is over; raises NoAnswer if the node does not report the outcome.

        The stop is carried out as soon as it does.
        """
        link, now = self._nodes.link_of(task), partial(self._lookup.task, task.id)

        def is_over() -> bool:
            return not now().live or now().container is not None

        await link.ready()
        await self._bus.until(lambda: is_over() or not link.online, LAUNCH_BOUND)
        if not is_over():
            name, why = link.node.name, link.observation.error
            silent = f"{name} does not answer" if link.online else unreachable(name, why)
            raise NoAnswer(f"{silent}; task {task.id} may have started")
        return now()
