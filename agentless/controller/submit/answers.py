"""The answer to a submit, task by task."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from agentless.controller.gangs.starts import Starts
from agentless.controller.scheduling.scheduler import Scheduler
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.controller.submit.request import Submit
from agentless.controller.tasks.launch.launcher import OUTCOME_WITHIN
from agentless.errors import AgentlessError, NoAnswer, Refused
from agentless.model.tasks.task import Assigning, Blocked, Ended, Lost, Task
from agentless.model.view import StartView

SUBMITTED = 10_000
"""Newest ended tasks that are searched for those of a repeated request."""


_log = logging.getLogger(__name__)


class Answers:
    """Waits until the outcome of each launch is known."""

    def __init__(
        self,
        starts: Starts,
        scheduler: Scheduler,
        tasks: Tasks,
        lookup: Lookup,
        views: TaskViews,
        bus: EventBus,
    ) -> None:
        self._starts = starts
        self._scheduler = scheduler
        self._tasks = tasks
        self._lookup = lookup
        self._views = views
        self._bus = bus

    async def repeated(self, request: Submit) -> list[StartView]:
        """Answer a repeated request whose first answer was lost; empty if it was never received."""
        tasks = self._submitted(request)
        if not tasks:
            return []
        live = self._tasks.live

        def are_settled() -> bool:
            return not any(task.id in live and isinstance(live[task.id].status, Assigning) for task in tasks)

        await self._bus.until(are_settled, OUTCOME_WITHIN)
        refused = StartView(
            "", None, Refused.exit_code, "refused by an earlier controller, which has stopped; submit again"
        )
        return [*map(self.begun, tasks), *[refused] * (len(request.specs) - len(tasks))]

    def not_begun(self, task: Task, turned_away: AgentlessError | None, soon: str, later: str) -> StartView:
        """The answer for a task that waits, or that was refused.

        `soon` is why it does not wait for long, and `later` where it goes if it does.
        """
        target = str(task.spec.needs)
        if turned_away:
            return StartView(target, None, turned_away.exit_code, str(turned_away))
        view = self._views.view(self._tasks.live[task.id])
        reason = "; ".join(filter(None, (soon or (view.reason or ""), later)))
        return StartView(target, replace(view, reason=reason) if soon or later else view, 0, "")

    async def handed_over(self, task: Task, start: StartView, within: float | None) -> StartView:
        """The answer for a blocked task once its cluster has it; `start` if that takes longer."""

        def is_there() -> bool:
            now = self._tasks.live.get(task.id)
            return now is None or not isinstance(now.status, Blocked | Assigning)

        await self._bus.until(is_there, within)
        return self.begun(task) if is_there() else start

    async def launched(self, task: Task, within: float | None = None) -> StartView:
        """Launch a task, wait for the outcome, and answer. After `within` seconds, the launch goes on by itself."""
        target = str(task.spec.needs)
        try:
            async with asyncio.timeout(within):
                await self._starts.first(task.id, self._scheduler.elsewhere)
        except TimeoutError:
            now = self._tasks.live.get(task.id, task)
            words = f"{now.node} has not answered yet, and may have submitted task {task.id}; check with: agentless ps"
            return StartView(target, self._views.view(now), NoAnswer.exit_code, words)
        except Refused as error:
            if task.id not in self._tasks.live:
                return StartView(target, None, error.exit_code, str(error))
        except NoAnswer as error:
            await self._starts.await_outcome(task.id)
            now = self._tasks.live.get(task.id, task)
            if isinstance(now.status, (Assigning, Lost)):
                words = f"task {task.id} may have started; when {now.node} is reachable, check with: agentless ps"
                return StartView(target, self._views.view(now), error.exit_code, f"{error}; {words}")
        except AgentlessError as error:
            words = f"task {task.id} may be running; check with: agentless ps"
            return StartView(
                target, self._views.view(self._tasks.live.get(task.id, task)), error.exit_code, f"{error}; {words}"
            )
        except Exception as error:  # noqa: BLE001 - who is not told of the task would start it twice
            _log.exception("task %s: unexpected error while launching", task.id)
            words = (
                f"unexpected error in agentless while starting task {task.id} ({error!r}); the task may be running; "
                "check with: agentless ps"
            )
            return StartView(target, self._views.view(self._tasks.live.get(task.id, task)), 1, words)
        return self.begun(task)

    def begun(self, task: Task) -> StartView:
        """The answer for a task that was admitted, by its last try."""
        target = str(task.spec.needs)
        if not self._tasks.knows(task.id):
            return StartView(target, None, 1, f"task {task.id} was removed while it was starting")
        now = self._lookup.find(task.id)
        failed = isinstance(now.status, Ended) and now.status.container is None
        reason = (now.status.reason if isinstance(now.status, Ended) else None) or ""
        return StartView(target, self._views.view(now), int(failed), reason if failed else "")

    # ------------------------------------------------------------------ inside

    def _submitted(self, request: Submit) -> list[Task]:
        """The tasks that an earlier request of this name has submitted."""
        every = {task.id: task for task in (*self._tasks.history.newest(SUBMITTED), *self._tasks.live.values())}
        found = [task for _, task in sorted(every.items()) if task.request and task.request == request.name]
        return [task for task in found if task.attempt == 1]
