"""Logs of tasks: read from the container, or from the copy that is kept here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from agentless.controller.nodes.cluster_link import TaskLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.tasks import Tasks
from agentless.errors import AgentlessError, NoAnswer, NoSession, Refused, RuntimeFailed, Unreachable
from agentless.formats.frames import POSITION, Frame
from agentless.model.containers.log_query import LogCursor, LogPosition, LogQuery
from agentless.model.nodes.node import unreachable, with_node
from agentless.model.tasks.task import Assigning, Ended, Task, Waiting
from agentless.model.tasks.task_id import next_try, numbered
from agentless.model.text import Excerpt
from agentless.ports import Clock, Reading
from agentless.rules.tasks.reconcile import container_of
from agentless.rules.tasks.retry import is_last_try
from agentless.stores.files.logs import LogStore

END_WITHIN = 2.0
"""Seconds after the end of a log in which its task has ended, too: then the node is asked."""
RECONNECTED_WITHIN = 30.0
"""Seconds that a log which broke off waits for its node before it says that it still does."""


class TaskLogs:
    """Reads logs."""

    def __init__(
        self,
        nodes: Nodes,
        tasks: Tasks,
        lookup: Lookup,
        kept: LogStore,
        bus: EventBus,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._tasks = tasks
        self._lookup = lookup
        self._logs = kept
        self._bus = bus
        self._clock = clock

    async def read(self, reference: str, query: LogQuery) -> AsyncIterator[tuple[int, bytes]]:
        """The task's output as (1 or 2, bytes), as it arrives; with `follow` until the last try of it has ended.

        Of an ended task the log that is kept here, where that is as good as the container's. A note is (3, words), and
        of a `resumable` one (POSITION, text) how far it has come, empty where one has to begin again.
        """
        task = self._lookup.task(query.position.task) if query.position else self._lookup.find(reference)
        is_one_try = not query.follow or reference == numbered(task.id)
        async for frame in self._log_of_try(task, query, is_one_try=is_one_try):
            yield frame
        while query.follow and reference != numbered(task.id) and self._may_go_on(task):
            await self._until_over(partial(self._lookup.task, task.id), None)
            if not self._tasks.knows(next_try(task.id)):
                return
            before = self._lookup.task(task.id)
            task = await self._started(self._lookup.task(next_try(task.id)))
            if task.container:
                preempted = f"task {before.id} was preempted; " if before.state == "preempted" else ""
                yield 3, f"{preempted}try {task.tries} of {task.spec.terms.retries + 1}, task {task.id}".encode()
                again = LogQuery(follow=True, timestamps=query.timestamps, resumable=query.resumable)
                async for frame in self._log_of_try(task, again, is_one_try=False):
                    yield frame

    # ------------------------------------------------------------------ inside

    def _may_go_on(self, task: Task) -> bool:
        """Whether another try may follow."""
        now = self._lookup.task(task.id)
        return not is_last_try(now) or now.stop == "preempt"

    async def _log_of_try(self, task: Task, query: LogQuery, *, is_one_try: bool) -> AsyncIterator[Frame]:
        """The log of one try. If it cannot be had, that is an error unless there is a next try, as after a reboot."""
        try:
            async for frame in self._log(task, query):
                yield frame
        except (RuntimeFailed, Refused) as error:
            if not is_one_try:
                await self._until_over(partial(self._lookup.task, task.id), END_WITHIN)
            if is_one_try or not self._tasks.knows(next_try(task.id)):
                raise
            yield 3, str(error).encode()

    async def _log(self, task: Task, query: LogQuery) -> AsyncIterator[Frame]:
        """The log of one try. Who follows it waits for a session, however long: the task goes on meanwhile."""
        notice = ""
        while True:
            try:
                async for frame in self._log_now(task, query):
                    yield frame
            except NoSession as error:
                if not query.follow:
                    raise
                if not notice:
                    notice = f"{error}; output starts here when a session is free"
                    yield 3, notice.encode()
                task = self._lookup.find(task.id)
            else:
                return

    async def _log_now(self, task: Task, query: LogQuery) -> AsyncIterator[Frame]:
        if isinstance(task.status, Waiting | Assigning):
            if not query.follow:
                raise Refused(f"task {task.id} is {task.state} and has no log yet")
            task = await self._started(task)
        if isinstance(task.status, Ended) and not task.status.container:
            raise Refused(f"task {task.id} has no log: it never started ({task.status.reason})")
        if not task.live and (kept := await self._kept(task, query)) is not None:
            count = _Counted(task, query, by_bytes=True)
            for frame in kept:
                for each in count(frame, None):
                    yield each
            return
        link = self._nodes.link_of(task)
        if query.position is None:
            await link.ready()
        else:  # it is the link's business when to try again
            await self._bus.until(lambda: link.online, RECONNECTED_WITHIN)
        if link.observation.error is not None:
            raise Unreachable(unreachable(link.node.name, link.observation.error))
        if query.since is not None and link.observation.engine:
            query = replace(query, since=query.since + link.observation.engine.clock)  # the engine's clock decides
        tail, came, runtime = Excerpt(), False, link.runtime_of(task)
        reading = runtime.reading(query)
        count = _Counted(task, query, by_bytes=reading.place is None)
        async with link.followed(runtime.logs(task.container_ref, query), query.tail) as stream:
            if query.resumable:
                yield POSITION, self._begin(link, task, query, reading)
            async for fd, data in stream:
                if fd == 2:
                    tail.add(data)
                for frame in reading(fd, data):
                    came = True
                    for each in count(frame, reading.place):
                        yield each
        if query.resumable and task.live:
            await self._make_sure_of_its_end(link, task, is_failure=stream.exit_code != 0 and not came)
        if stream.exit_code != 0:
            raise RuntimeFailed(with_node(link.node.name, runtime.complaint(str(tail))))

    def _begin(self, link: TaskLink, task: Task, query: LogQuery, reading: Reading) -> bytes:
        """Where to go on before anything has come; nothing, where that is to ask again."""
        engine = link.observation.engine
        if query.tail != 0 or query.position or not engine or reading.place is None:
            return b""
        return str(LogCursor(task.id, place=LogPosition.at(self._clock.now() + engine.clock))).encode()

    async def _make_sure_of_its_end(self, link: TaskLink, task: Task, *, is_failure: bool) -> None:
        """Raises NoAnswer when the log of a task has ended, and the task has not: an engine was restarted."""
        live = self._tasks.live
        await self._bus.until(lambda: task.id not in live, END_WITHIN)
        if task.id in live:
            try:
                await link.look(task.id, link.runtime_of(task))
            except AgentlessError as error:
                raise NoAnswer(str(error)) from None
        if task.id in live and not is_failure:
            raise NoAnswer(
                f"{link.node.name} ended the log of task {task.id}, which is still {live[task.id].state}; retry"
            )

    async def _until_over(self, task: Callable[[], Task], within: float | None) -> Task:
        await self._bus.until(lambda: not task().live, within)
        return task()

    async def _kept(self, task: Task, query: LogQuery) -> Iterable[Frame] | None:
        """The log of an ended task as it is kept here, None when that of its container is to be read."""
        kept = self._logs.state(task.id)
        timed = query.since is not None or query.timestamps or (query.position and query.tail is not None)
        if kept == "whole" and not timed and not query.place:
            return await self._read(task, query)
        link = self._nodes.every.get(task.node or "")
        if link:
            await link.ready(within=5.0 if kept else 20.0)
        engine = link.observation.engine if link and link.online else None
        if engine is None or engine.containers is None:
            elsewhere = f"{task.node} does not answer"
        elif container_of(task, engine.containers) is None:
            elsewhere = "its container is gone"
        else:
            return None
        if kept == "given up":
            raise Refused(f"the log of task {task.id} was discarded to save disk space (keep: logs), and {elsewhere}")
        if kept and timed:
            why = f"the kept log of task {task.id} has no timestamps, and {elsewhere}"
            raise Refused(f"{why}; omit --since and --timestamps")
        if not kept and engine:
            raise Refused(f"task {task.id} has no log: its container was removed before agentless copied the log")
        return await self._read(task, query) if kept else None

    async def _read(self, task: Task, query: LogQuery) -> Iterable[Frame]:
        if query.tail is None or query.position:
            return self._logs.read(task.id)
        return await asyncio.to_thread(list, self._logs.read(task.id, query.tail))  # a long log has millions of lines

    async def _started(self, task: Task) -> Task:
        now = partial(self._lookup.task, task.id)
        await self._bus.until(lambda: not now().live or now().container)
        return now()


class _Counted:
    """Counts what is sent of a log, and says after each piece how far that is.

    `by_bytes`: what was sent before its position comes again, and is left out.
    """

    def __init__(self, task: Task, query: LogQuery, *, by_bytes: bool) -> None:
        self._task, self._query = task.id, query
        self._sent = dict(zip((1, 2), query.position.sent if query.position else (0, 0), strict=True))
        self._known = dict(self._sent) if by_bytes else {1: 0, 2: 0}

    def __call__(self, frame: Frame, place: LogPosition | None) -> Iterator[Frame]:
        """The frame, as far as it is new, and how far it is with it."""
        stream, data = frame
        if stream in self._sent:
            known = min(self._known[stream], len(data))
            self._known[stream] -= known
            data = data[known:]
            self._sent[stream] += len(data)
        if data:
            yield stream, data
        if data and self._query.resumable:
            # Without times, the last lines would be others by then.
            known = place is not None or self._query.tail is None
            yield POSITION, str(LogCursor(self._task, (self._sent[1], self._sent[2]), place)).encode() if known else b""
