"""The queue: looks at who waits whenever something has changed, and starts those whose turn it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from agentless import plugins
from agentless.controller.core import Core
from agentless.errors import AgentlessError, StateError
from agentless.model.event import Assigned, GaveUp
from agentless.model.task import Pending, Task
from agentless.model.units import format_duration
from agentless.model.view import ExplainView, ObstacleView
from agentless.rules.explain import against, brief
from agentless.rules.order import order
from agentless.rules.plan import Outlook, Plan, plan
from agentless.rules.publish import timestamp
from agentless.rules.search import Cost

LOOK_EVERY = 2.0
"""Seconds between two looks at a queue to which nothing has happened: GPU memory may be free by now."""
TOLD = 20
"""So many at the head of the queue are told what is in their way; the others, how many are before them."""
AGAIN_AFTER = 2.0
"""Seconds before a task that a node has refused is tried again: whoever was there first is seen by then."""

_log = logging.getLogger(__name__)


class Scheduler:
    """Those who wait, in their order. `policy` is the one that the inventory names; `launch` begins a launch."""

    def __init__(self, core: Core, launch: Callable[[str], None]) -> None:
        self.policy = "pack"
        self.plan = Plan()
        self._core = core
        self._positions: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        core.outlook = self.outlook
        self._launch = launch
        self._news = asyncio.Event()
        self._work: list[asyncio.Task[None]] = []

    @property
    def queue(self) -> list[Task]:
        """The tasks that wait, those first that are next."""
        return order(self._waiting())

    def look(self, others: Iterable[Task] = ()) -> Plan:
        """What would happen now to those who wait, and to these others."""
        now = self._core.clock.now()
        waiting = [task for task in self._waiting() if not _was_refused_just_now(task, now)]
        policies = {name: POLICIES[name or self.policy] for name in (None, *POLICIES)}
        return plan(self._core.cluster(), order([*waiting, *others]), now, policies, self.plan)

    def outlook(self, task: Task) -> Outlook:
        """What one who waits is told."""
        if task.id not in self._positions:
            self._positions = {waiting.id: number for number, waiting in enumerate(self.queue, 1)}
        position = self._positions.get(task.id)
        if position is None:
            return Outlook()
        if position > TOLD:
            return Outlook(position, f"{position - 1} tasks are before it", self.plan.promises.get(task.id))
        if task.id not in self._reasons:
            refused = task.status.reason if isinstance(task.status, Pending) else ""
            found = brief(self._core.cluster(), task.spec)
            self._reasons[task.id] = found or refused or "what is free is promised to those before it"
        return Outlook(position, self._reasons[task.id], self.plan.promises.get(task.id))

    def explain(self, task: Task) -> ExplainView:
        """Why a task does not start, node by node."""
        if not isinstance(task.status, Pending):
            return ExplainView(task.id, f"task {task.id} is {task.state}: it waits for nothing", None, ())
        outlook = self.outlook(task)
        found = [
            ObstacleView(name, obstacle.text, obstacle.details)
            for name, each in against(self._core.cluster(), task.spec).items()
            for obstacle in each
        ]
        when, start = "when it starts is not known yet", None
        if outlook.promise and outlook.promise.start is None:
            when = f"it starts on {outlook.promise.node} when something ends there that has no time limit"
        elif outlook.promise and outlook.promise.start:
            start = outlook.promise.start
            left = format_duration(start - self._core.clock.now())
            when = f"it starts in {left} at the latest, on {outlook.promise.node}"
        summary = f"task {task.id} ({task.spec.needs}) is number {outlook.position} in the queue; {when}"
        return ExplainView(task.id, summary, timestamp(start), tuple(found))

    def start(self) -> None:
        """Begin to look."""
        self._work = [asyncio.create_task(self._listen(), name="queue news"), asyncio.create_task(self._keep_looking())]

    async def close(self) -> None:
        """Leave the queue as it is: the next controller goes on with it."""
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def tick(self) -> None:
        """What happens by the passing of time: some have waited for long enough."""
        now = self._core.clock.now()
        for task in self._waiting():
            wait_for = task.spec.terms.wait_for
            if wait_for is not None and now - task.created_at >= wait_for:
                words = f"gave up after {format_duration(wait_for)} in the queue (--wait-for)"
                self._core.apply(task.id, GaveUp(words), "its time in the queue is over")

    # ------------------------------------------------------------------ inside

    async def _listen(self) -> None:
        with self._core.hub.listen() as news:
            async for _ in news:
                self._news.set()

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._news.wait()
            self._news.clear()
            began = loop.time()
            try:
                self._begin()
            except StateError as error:
                self._core.trouble = str(error)  # and once more at the next look
            except Exception:  # noqa: BLE001 - one bad look must not end the queue
                _log.exception("looking at the queue failed in an unforeseen way")
            # Half of the time at most, however long the queue is.
            await asyncio.sleep(max(0.005, loop.time() - began))

    def _begin(self) -> None:
        """Start those whose turn it is."""
        self._positions.clear()
        self._reasons.clear()
        if not self._waiting():
            self.plan = Plan()
            return
        self.plan = self.look()
        starts = {task: (Assigned(placement), "its turn in the queue") for task, placement in self.plan.starts.items()}
        self._core.launching.update(starts)
        try:
            self._core.apply_all(starts)
        except AgentlessError:
            self._core.launching.difference_update(starts)
            raise
        for task in starts:
            self._launch(task)

    def _waiting(self) -> list[Task]:
        return [task for task in self._core.tasks.values() if isinstance(task.status, Pending)]


def _was_refused_just_now(task: Task, now: float) -> bool:
    since = task.status.since if isinstance(task.status, Pending) else None
    return since is not None and now - since < AGAIN_AFTER


POLICIES: Mapping[str, Cost] = {
    name: plugins.load("rules.policies", name).cost for name in plugins.names("rules.policies")
}
"""All there are, by name."""
