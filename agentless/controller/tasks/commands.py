"""What can be done to a task that exists: stop, kill, pause, resume, wait for, read, remove."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from agentless.controller.files.outputs import Outputs
from agentless.controller.files.uploads import Uploads
from agentless.controller.nodes.connection import Link
from agentless.controller.nodes.registry import Core
from agentless.errors import AgentlessError, NoAnswer, NoSession, Refused, RuntimeFailed, Unreachable
from agentless.model.command import Command
from agentless.model.nodes.node import unreachable
from agentless.model.tasks.event import Queued, StopAsked
from agentless.model.tasks.log_query import LogQuery, Place, Position
from agentless.model.tasks.task import Assigning, Ended, Paused, Pending, Running, Scheduled, StopKind, Task
from agentless.model.tasks.task_id import first_try, next_try, numbered
from agentless.model.terminal import POSITION
from agentless.model.text import both_ends
from agentless.model.view import ScriptView, TaskView
from agentless.ports import Reading
from agentless.rules.nodes.cgroup_limits import in_words
from agentless.rules.tasks.due import within_limit
from agentless.rules.tasks.reconcile import LAUNCH_BOUND, container_of
from agentless.rules.tasks.retry import fresh_try
from agentless.rules.views.publish import address_of
from agentless.stores.files.logs import Frame, LogStore

FOREIGN_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL for what this controller did not start, unless who asks says otherwise."""
KILL_WITHIN = 15.0
"""Seconds after SIGKILL in which the engine has to report the end."""
END_WITHIN = 2.0
"""Seconds after the end of a log in which its task has ended, too: then the node is asked."""
RECONNECTED_WITHIN = 30.0
"""Seconds that a log which broke off waits for its node before it says that it still does."""


class Actions:
    """The verbs. Each returns the task as it is when the node has answered.

    `by` is who asks, as the events say it; None: the controller's own owner.
    """

    def __init__(self, core: Core, logs: LogStore, outputs: Outputs, uploads: Uploads) -> None:
        self._core = core
        self._logs = logs
        self._outputs = outputs
        self._uploads = uploads
        self._stopping: Counter[str] = Counter()

    async def stop(self, reference: str, how: StopKind, grace: float | None = None, by: str | None = None) -> TaskView:
        """End a task: SIGTERM, the grace time in seconds (None: as submitted), SIGKILL; `kill` is SIGKILL at once."""
        return self._core.view(await self._ask(self._core.find(reference), how, grace, by))

    async def _ask(self, task: Task, how: StopKind, grace: float | None, by: str | None) -> Task:
        if isinstance(task.status, Ended):
            return task
        if task.id in self._core.tasks:
            # Saved before anything is sent: a stop survives the controller, and wins over a start under way.
            task = self._core.apply(task.id, StopAsked(how, grace), self._cause(how, by))
        else:
            self._core.publish(task, "stop-asked", self._cause(how, by))
            grace = FOREIGN_GRACE if grace is None else grace  # what its labels say may be a year
        if isinstance(task.status, (Scheduled, Pending)):
            return task  # its end cannot be written yet, and it does not start
        try:
            return await self._end(task, how, grace)
        except NoAnswer as error:
            if task.id not in self._core.tasks:
                raise
            raise Unreachable(
                f"{error}; this is remembered: task {task.id} is ended when {task.node} answers"
            ) from None

    def resume_stops(self) -> list[Coroutine[Any, Any, Task]]:
        """What is left to do for stops that a controller before this one was asked for, or that came before a start.

        Or for which the disk had no room.
        """
        asked = [task for task in self._core.tasks.values() if task.stop and not self._stopping[task.id]]
        for task in asked:
            if task.stop and isinstance(task.status, (Scheduled, Pending)) and not self._core.trouble:
                self._core.apply(task.id, StopAsked(task.stop), "there is room to write it down")
        return [
            self._end(task, task.stop, task.grace)
            for task in asked
            if task.stop and isinstance(task.status, (Running, Paused)) and not self._is_over(task.id)
        ]

    async def _end(self, task: Task, how: StopKind, grace: float | None) -> Task:
        """Send the signals; the task once it has ended. `grace` is None for the time that it was submitted with."""
        self._stopping[task.id] += 1
        try:
            return await self._signal(task, how, task.spec.stop_grace if grace is None else grace)
        finally:
            self._stopping[task.id] -= 1
            self._stopping += Counter()  # without those at 0

    async def _signal(self, task: Task, how: StopKind, grace: float) -> Task:
        if task.live and not task.container:
            task = await self._launched(task)
        if isinstance(task.status, Ended):
            return task
        link = self._link(task)
        runtime = link.runtime_of(task)
        gentle = task.spec.terms.signal if how == "timeout" else "TERM"
        if how != "kill":
            if isinstance(task.status, Paused):
                await self._do(link, task, runtime.resume(task.container_ref))
            await self._do(link, task, runtime.signal(task.container_ref, gentle))
            most = within_limit(task, grace, self._core.clock.now()) if how == "stop" else grace
            task = await self._ended(task.id, most)
        if not self._is_over(task.id):
            await self._do(link, task, runtime.signal(task.container_ref, "KILL"))
            task = await self._ended(task.id, KILL_WITHIN)
        if not self._is_over(task.id):
            raise RuntimeFailed(f"{link.node.name} has not ended task {task.id} {KILL_WITHIN:.0f} s after SIGKILL")
        return task

    def retry(self, reference: str, by: str | None = None) -> TaskView:
        """Take in the next try of a task that has ended, whatever its terms say of that."""
        task = self._core.find(reference)
        if task.live:
            raise Refused(f"task {task.id} is {task.state}: only one that has ended can be tried again")
        if not self._core.knows(task.id):
            raise Refused(f"task {task.id} is not remembered here; agentless recover takes back what is yours")
        if self._core.knows(later := next_try(task.id)):
            raise Refused(f"task {task.id} has been tried again: it went on as {later}; agentless retry {later}")
        if task.spec.secret_env:
            raise Refused(f"the secrets of task {task.id} were not kept; submit it again")
        again = fresh_try(task, self._core.clock.now())
        try:
            self._uploads.check([again])
        except Refused as error:
            raise Refused(f"task {task.id} cannot be tried again: {error}") from None
        return self._core.view(self._core.add(again, Queued(), self._cause("retry", by)))

    async def pause(self, reference: str) -> TaskView:
        """Freeze a running task; it keeps its GPUs and their memory."""
        return await self._toggle(reference, "running", "pause")

    async def resume(self, reference: str) -> TaskView:
        """Let a paused task go on."""
        return await self._toggle(reference, "paused", "resume")

    async def remove(self, reference: str, *, force: bool = False, by: str | None = None) -> TaskView:
        """Remove an ended task with its container and its log, and all tries of it unless the number of one is given.

        `force` kills a live one first.
        """
        task = self._core.find(reference)
        tries = [task] if reference == numbered(task.id) else [*self._earlier(task), task]
        if late := next((each for each in tries if self._outputs.open(each) and not force), None):
            raise Refused(f"the outputs of task {late.id} have not come yet; agentless wait {late.id}, or rm --force")
        if live := next((each for each in tries if each.live and not force), None):
            raise Refused(f"task {live.id} is {live.state}; agentless stop {live.id} first, or rm --force")
        return [await self._remove(each, by, force=force) for each in tries][-1]

    def _earlier(self, task: Task) -> Iterator[Task]:
        """The tries before this one that are still known."""
        each = first_try(task.id)
        for _ in range(1, task.attempt):
            if self._core.knows(each):
                yield self._core.task(each)
            each = next_try(each)

    async def _remove(self, task: Task, by: str | None, *, force: bool) -> TaskView:
        """What was known of it last."""
        if task.live:
            if task.placement and task.node not in self._core.links:
                return self._forget(task, f"{self._cause('rm --force', by)}; {task.node} is not in the inventory")
            try:
                await self._ask(task, "kill", None, by)
            except Unreachable as error:
                raise Unreachable(f"{error}; then remove it: agentless rm {task.id}") from None
            task = self._core.task(task.id)
        if isinstance(task.status, Ended) and task.status.container and task.node in self._core.links:
            link = self._link(task)
            await link.ready()
            # Not by force unless it was asked for: somebody may have started it again meanwhile.
            runtime = link.runtime_of(task)
            result = await link.run(runtime.remove(task.container_ref, force=force))
            if not result.ok and "no such container" not in result.err.lower():
                runtime.check(result)
        self._outputs.forget(task)
        return self._forget(task, self._cause("rm", by))

    def _forget(self, task: Task, cause: str) -> TaskView:
        """What was known of it last: afterwards its container would be a stranger's."""
        self._logs.remove(task.id)
        view = self._core.view(task)
        self._core.forget(task, "removed", cause)
        return view

    def script(self, reference: str) -> ScriptView:
        """What the launch of a task gives to its node; raises Refused for one that has none yet."""
        task = self._core.find(reference)
        if task.placement is None:
            raise Refused(
                f"task {task.id} is {task.state} and has no node yet; agentless submit --dry-run shows a script"
            )
        if not self._core.knows(task.id):
            raise Refused(f"task {task.id} is not ours, and its script not for us to write")
        link = self._core.link(task.placement.node)
        secrets, engine = dict.fromkeys(task.spec.secret_env, ""), link.observation.engine
        command = link.runtime_of(task).launch(task, task.placement, secrets, engine=engine)
        return ScriptView(link.node.name, address_of(link.node), command.text(masked=True))

    async def wait(self, reference: str, within: float | None = None) -> Task:
        """The task once it has ended and its outputs are here, or what keeps them from coming is known.

        As it is after `within` seconds; of one that is tried again the last try.
        """
        task = self._core.find(reference).id
        wanted = partial(self._core.find, reference if reference == numbered(task) else first_try(task))
        await self._core.hub.until(lambda: not wanted().live and not self._outputs.coming(wanted()), within)
        return wanted()

    async def logs(self, reference: str, query: LogQuery) -> AsyncIterator[tuple[int, bytes]]:
        """The task's output as (1 or 2, bytes), as it arrives; with `follow` until the last try of it has ended.

        Of an ended task the log that is kept here, where that is as good as the container's. A note is (3, words), and
        of a `resumable` one (POSITION, text) how far it has come, empty where one has to begin again.
        """
        task = self._core.task(query.position.task) if query.position else self._core.find(reference)
        is_one_try = not query.follow or reference == numbered(task.id)
        async for frame in self._log_of_try(task, query, is_one_try=is_one_try):
            yield frame
        while query.follow and reference != numbered(task.id) and task.attempt <= task.spec.terms.retries:
            await self._until_over(partial(self._core.task, task.id), None)
            if not self._core.knows(next_try(task.id)):
                return
            task = await self._started(self._core.task(next_try(task.id)))
            if task.container:
                yield 3, f"try {task.attempt} of {task.spec.terms.retries + 1}, task {task.id}".encode()
                again = LogQuery(follow=True, timestamps=query.timestamps, resumable=query.resumable)
                async for frame in self._log_of_try(task, again, is_one_try=False):
                    yield frame

    async def _log_of_try(self, task: Task, query: LogQuery, *, is_one_try: bool) -> AsyncIterator[Frame]:
        """The log of one try. That it cannot be had is the end, unless there is a next try, as after a reboot."""
        try:
            async for frame in self._log(task, query):
                yield frame
        except RuntimeFailed as error:
            if not is_one_try:
                await self._until_over(partial(self._core.task, task.id), END_WITHIN)
            if is_one_try or not self._core.knows(next_try(task.id)):
                raise
            yield 3, str(error).encode()

    async def _log(self, task: Task, query: LogQuery) -> AsyncIterator[Frame]:
        """The log of one try. Who follows it waits for a session, however long: the task goes on meanwhile."""
        told = ""
        while True:
            try:
                async for frame in self._log_now(task, query):
                    yield frame
            except NoSession as error:
                if not query.follow:
                    raise
                if not told:
                    told = f"{error}; the output begins here when one is free"
                    yield 3, told.encode()
                task = self._core.find(task.id)
            else:
                return

    async def _log_now(self, task: Task, query: LogQuery) -> AsyncIterator[Frame]:
        if isinstance(task.status, (Scheduled, Pending, Assigning)):
            if not query.follow:
                raise Refused(f"task {task.id} is {task.state}: there is no log yet")
            task = await self._started(task)
        if isinstance(task.status, Ended) and not task.status.container:
            raise Refused(f"task {task.id} has no log: it never started ({task.status.reason})")
        if not task.live and (kept := await self._kept(task, query)) is not None:
            count = _Counted(task, query, by_bytes=True)
            for frame in kept:
                for each in count(frame, None):
                    yield each
            return
        link = self._link(task)
        if query.position is None:
            await link.ready()
        else:  # it is the link's business when to try again
            await self._core.hub.until(lambda: link.online, RECONNECTED_WITHIN)
        if link.observation.error is not None:
            raise Unreachable(unreachable(link.node.name, link.observation.error))
        if query.since is not None and link.observation.engine:
            query = replace(query, since=query.since + link.observation.engine.clock)  # the engine's clock decides
        words, came, runtime = b"", False, link.runtime_of(task)
        reading = runtime.reading(query)
        count = _Counted(task, query, by_bytes=reading.place is None)
        async with link.followed(runtime.logs(task.container_ref, query), query.tail) as stream:
            if query.resumable:
                yield POSITION, self._begin(link, task, query, reading)
            async for fd, data in stream:
                if fd == 2:
                    words = both_ends(words, data)
                for frame in reading(fd, data):
                    came = True
                    for each in count(frame, reading.place):
                        yield each
        if query.resumable and task.live:
            await self._make_sure_of_its_end(link, task, is_failure=stream.exit_code != 0 and not came)
        if stream.exit_code != 0:
            raise RuntimeFailed(f"{link.node.name}: {runtime.complaint(words.decode('utf-8', 'replace'))}")

    def _begin(self, link: Link, task: Task, query: LogQuery, reading: Reading) -> bytes:
        """Where to go on before anything has come; nothing, where that is to ask again."""
        engine = link.observation.engine
        if query.tail != 0 or query.position or not engine or reading.place is None:
            return b""
        return str(Position(task.id, place=Place.at(self._core.clock.now() + engine.clock))).encode()

    async def _make_sure_of_its_end(self, link: Link, task: Task, *, is_failure: bool) -> None:
        """Raises NoAnswer when the log of a task has ended, and the task has not: an engine was restarted."""
        live = self._core.tasks
        await self._core.hub.until(lambda: task.id not in live, END_WITHIN)
        if task.id in live:
            try:
                await link.look(task.id, link.runtime_of(task))
            except AgentlessError as error:
                raise NoAnswer(str(error)) from None
        if task.id in live and not is_failure:
            raise NoAnswer(f"{link.node.name} ended the log of task {task.id}, which is {live[task.id].state}")

    # ------------------------------------------------------------------ inside

    def _cause(self, verb: str, by: str | None) -> str:
        return f"agentless {verb}, by {by or self._core.owner}"

    async def _ended(self, task_id: str, within: float) -> Task:
        await self._core.hub.until(lambda: self._is_over(task_id), within)
        return self._core.task(task_id)

    def _is_over(self, task_id: str) -> bool:
        """Whether a task has ended, be it that its end cannot be written down yet."""
        task = self._core.task(task_id)
        if not task.live or not self._core.trouble or task.node not in self._core.links:
            return not task.live
        container = container_of(task, self._core.links[task.node].containers)
        return container is not None and container.over

    async def _until_over(self, task: Callable[[], Task], within: float | None) -> Task:
        await self._core.hub.until(lambda: not task().live, within)
        return task()

    async def _kept(self, task: Task, query: LogQuery) -> Iterable[Frame] | None:
        """The log of an ended task as it is kept here, None when that of its container is to be read."""
        kept = self._logs.state(task.id)
        timed = query.since is not None or query.timestamps or (query.position and query.tail is not None)
        if kept == "whole" and not timed and not query.place:
            return await self._read(task, query)
        link = self._core.links.get(task.node or "")
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
            raise Refused(f"the log of task {task.id} was given up for the disk budget (keep: logs), and {elsewhere}")
        if kept and timed:
            why = f"the kept log of task {task.id} has no times, and {elsewhere}"
            raise Refused(f"{why}: read it without --since and --timestamps")
        if not kept and engine:
            raise Refused(f"task {task.id} has no log: its container was removed before the log was fetched")
        return await self._read(task, query) if kept else None

    async def _read(self, task: Task, query: LogQuery) -> Iterable[Frame]:
        if query.tail is None or query.position:
            return self._logs.read(task.id)
        return await asyncio.to_thread(list, self._logs.read(task.id, query.tail))  # a long log has millions of lines

    async def _started(self, task: Task) -> Task:
        now = partial(self._core.task, task.id)
        await self._core.hub.until(lambda: not now().live or now().container)
        return now()

    async def _launched(self, task: Task) -> Task:
        """The task once its launch is over; raises NoAnswer for a node that does not say what became of it.

        What was asked for is done as soon as the node does.
        """
        link, now = self._link(task), partial(self._core.task, task.id)

        def is_over() -> bool:
            return not now().live or now().container is not None

        await link.ready()
        await self._core.hub.until(lambda: is_over() or not link.online, LAUNCH_BOUND)
        if not is_over():
            name, why = link.node.name, link.observation.error
            silent = f"{name} does not say" if link.online else unreachable(name, why)
            raise NoAnswer(f"{silent}; task {task.id} may have been started")
        return now()

    async def _toggle(self, reference: str, wanted: str, verb: str) -> TaskView:
        task = self._core.find(reference)
        if task.state != wanted:
            raise Refused(f"task {task.id} is {task.state}: only a {wanted} task can be {verb}d")
        link = self._link(task)
        runtime, engine = link.runtime_of(task), link.observation.engine
        if verb == "pause" and not task.spec.on_node_itself and engine and "freezer" in engine.lacks:
            raise Refused(in_words(link.node, "freezer"))
        command = runtime.pause if verb == "pause" else runtime.resume
        await self._do(link, task, command(task.container_ref))
        return self._core.view(self._core.task(task.id))

    async def _do(self, link: Link, task: Task, command: Command) -> None:
        """Run an engine command, then look: the answer is what the node says afterwards."""
        await link.ready()
        result = await link.run(command)
        await link.look(task.id, link.runtime_of(task))
        if not result.ok and not self._is_over(task.id):
            link.runtime_of(task).check(result)

    def _link(self, task: Task) -> Link:
        if task.node is None:
            raise Refused(f"task {task.id} is {task.state}: it is on no node yet")
        if task.node not in self._core.links:
            raise Unreachable(f"{task.node} is not in the inventory any more; add it again to reach its tasks")
        return self._core.links[task.node]


class _Counted:
    """Counts what is sent of a log, and says after each piece how far that is.

    `by_bytes`: what was sent before its position comes again, and is left out.
    """

    def __init__(self, task: Task, query: LogQuery, *, by_bytes: bool) -> None:
        self._task, self._query = task.id, query
        self._sent = dict(zip((1, 2), query.position.sent if query.position else (0, 0), strict=True))
        self._known = dict(self._sent) if by_bytes else {1: 0, 2: 0}

    def __call__(self, frame: Frame, place: Place | None) -> Iterator[Frame]:
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
            yield POSITION, str(Position(self._task, (self._sent[1], self._sent[2]), place)).encode() if known else b""
