"""Retention: fetches logs and outputs of ended tasks, and removes their containers in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from agentless.controller.files.outputs import Outputs, PutOff
from agentless.controller.guarded import guarded, guarded_item
from agentless.controller.in_thread import in_thread
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.events import EventBus, News
from agentless.controller.state.tasks import Tasks
from agentless.errors import AgentlessError, NoAnswer, RuntimeFailed, StateError
from agentless.inventory.inventory import Inventory
from agentless.model.command import Command
from agentless.model.tasks.claim import claim_of
from agentless.model.tasks.container import Container
from agentless.model.tasks.log_query import LogQuery
from agentless.model.tasks.retention import Keep
from agentless.model.tasks.task import Task
from agentless.model.text import Excerpt
from agentless.ports import Clock
from agentless.rules.tasks.retention import LARGE_AT_ONCE, Chores, chores, cut_note, fetched_now, split_tail
from agentless.stores.files.logs import LogStore, LogWriter

RETRY_AFTER = 60.0
"""Seconds before a log that could not be fetched, or a container that could not be removed, is tried again."""
BRING_AGAIN_WITHIN = 3600.0
"""Seconds before outputs are tried again, at most: the first time after `RETRY_AFTER`, then after twice as long."""
_NUMBER = 100
"""Characters of a number, with the blanks before it."""
_COUNT = ("wc", "-c")
"""The program that prints how long a stream is, in bytes."""
FETCH_WITHIN = 3600.0
"""Seconds for one log: an engine that counts the bytes of a very long one takes minutes."""

_log = logging.getLogger(__name__)


class Retention:
    """Fetches logs and removes containers one by one per node, and outputs of a few tasks at once.

    `keep` are the settings in force.
    """

    def __init__(
        self, nodes: Nodes, tasks: Tasks, logs: LogStore, outputs: Outputs, bus: EventBus, clock: Clock
    ) -> None:
        self.keep = Keep()
        self._troubles: dict[str, str] = {}
        self._nodes = nodes
        self._tasks = tasks
        self._bus = bus
        self._clock = clock
        self._logs = logs
        self._outputs = outputs
        self._known: dict[str, Task | None] = {}
        self._not_before: dict[str, float] = {}
        self._idle: dict[str, tuple[tuple[Container, ...], Keep, float]] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._bringing: defaultdict[str, dict[str, asyncio.Task[None]]] = defaultdict(dict)
        self._failures: Counter[str] = Counter()
        self._warned: dict[tuple[str, str], str] = {}
        self._listening: asyncio.Task[None] | None = None

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its settings."""
        self.keep = inventory.keep

    @property
    def trouble(self) -> str | None:
        """Why logs or outputs cannot be kept here at present, each until one of its own kind could be."""
        return "; ".join(dict.fromkeys(self._troubles.values())) or None

    @property
    def busy(self) -> bool:
        """Whether something is being fetched or removed."""
        return bool(self._at_work) or any(self._bringing.values())

    def tick(self) -> None:
        """Start whatever is due."""
        now = self._clock.now()
        later = {task: moment for task, moment in self._not_before.items() if moment > now}
        if len(later) < len(self._not_before):
            self._idle.clear()
        self._not_before = later
        there = {container.id for link in self._nodes.links.values() for container in link.containers}
        self._known = {container: task for container, task in self._known.items() if container in there}
        if not self._not_before:
            self._troubles.clear()
        with guarded("outputs that are lost"):
            self._outputs.settle_lost()
        for link in self._nodes.links.values():
            with guarded_item(f"{link.node.name}: what is left of its tasks"):
                self._begin(link)

    def start(self) -> None:
        """From now on, begin as soon as a task ends."""
        self._listening = asyncio.create_task(self._listen(), name="keeper")

    async def close(self) -> None:
        """Cancel what is in progress; the next controller starts it again."""
        bringing = [one for here in self._bringing.values() for one in here.values()]
        work = [*self._at_work.values(), *bringing, *filter(None, [self._listening])]
        for one in work:
            one.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    # ------------------------------------------------------------------ what to do

    async def _listen(self) -> None:
        with self._bus.listen() as news:
            async for item in news:
                try:
                    self._handle(item)
                except StateError as error:
                    self._troubles["stores"] = str(error)
                except Exception:  # noqa: BLE001 - one task must not end the keeping of all
                    _log.exception("keeping what is left of tasks failed in an unforeseen way")

    def _handle(self, item: News) -> None:
        if item["kind"] == "missed":
            self._known.clear()
        if item["kind"] != "task":
            return
        task = item["task"]
        self._known.pop(task["container"], None)
        self._idle.pop(task["node"], None)
        if task["ended_at"] is None:
            self._logs.remove(task["id"])
        elif link := self._nodes.links.get(task["node"]):
            self._begin(link)

    def _begin(self, link: NodeLink) -> None:
        name, now = link.node.name, self._clock.now()
        containers, keep, due = self._idle.get(name, ((), self.keep, 0.0))
        if not link.online or (name in self._at_work and not self._outputs.expected.waiting):
            return
        if containers is link.containers and keep is self.keep and now <= due:
            return
        todo = self._chores(link)
        self._bring(link, todo.bring)
        if name in self._at_work:
            return
        if todo.fetch or todo.remove or todo.reap:
            self._at_work[name] = asyncio.create_task(self._work(link), name=f"keeper {name}")
        elif not todo.bring:
            self._idle[name] = (link.containers, self.keep, todo.due)

    def _chores(self, link: NodeLink) -> Chores:
        now = self._clock.now()
        found = [self._ended(container) for container in link.containers if container.over]
        # Of a machine that is in the inventory twice, each name shows the container: only its own fetches the log.
        own = (task for task in found if task and (task.node == link.node.name or task.node not in self._nodes.links))
        ended = {task.id: task for task in own if self._not_before.get(task.id, 0.0) <= now}
        untried = [c for c in link.containers if self._not_before.get(c.id, 0.0) <= now]
        todo = chores(untried, self._tasks.live, ended, self._logs, now, self.keep, self._outputs.expected)
        bring = tuple(task for task in todo.bring if self._not_before.get(_outputs_of(task), 0.0) <= now)
        return replace(todo, bring=bring)

    def _ended(self, container: Container) -> Task | None:
        """The task of a container if it has ended here. Looked up once, for that is a query to the history."""
        claim = claim_of(container)
        if claim is None or claim.task in self._tasks.live:
            return None
        if container.id not in self._known:
            self._known[container.id] = self._tasks.history.get(claim.task)
        return self._known[container.id]

    # ------------------------------------------------------------------ doing it

    async def _work(self, link: NodeLink) -> None:
        """Until there is nothing left to do, or the node does not answer: it is begun again when it does."""
        try:
            while (todo := self._chores(link)) and (todo.fetch or todo.remove or todo.reap):
                for task in todo.fetch:
                    await self._once("logs", link, task, self._fetch(link, task))
                for task in todo.remove:
                    await self._once("containers", link, task, self._remove(link, task))
                for container in todo.reap:
                    await self._reap(link, container)
            self._troubles.pop("stores", None)
        except NoAnswer as error:
            _log.info("%s", error)
        except StateError as error:
            self._troubles["stores"] = str(error)
        except Exception:  # noqa: BLE001 - begun again at the next tick
            _log.exception("%s: keeping what is left of its tasks failed in an unforeseen way", link.node.name)
        finally:  # in the same step as the last look: what is due from here on is begun anew
            del self._at_work[link.node.name]

    async def _once(self, kind: str, link: NodeLink, task: Task, work: Coroutine[Any, Any, None]) -> None:
        """Not again within a minute, if it fails."""
        if not await self._try(kind, link, task, work):
            self._not_before[task.id] = self._clock.now() + RETRY_AFTER

    def _bring(self, link: NodeLink, waiting: Sequence[Task]) -> None:
        """Begin to fetch outputs, as far as it is the turn of these tasks."""
        here = self._bringing[link.node.name]
        for task in fetched_now(waiting, here, self._outputs.large):
            here[task.id] = asyncio.create_task(self._bring_one(link, task), name=f"outputs of {task.id}")

    async def _bring_one(self, link: NodeLink, task: Task) -> None:
        here, large = self._bringing[link.node.name], self._outputs.large

        def may_be_large() -> bool:
            return sum(other in large for other in here) <= LARGE_AT_ONCE

        try:
            with contextlib.suppress(PutOff):
                if await self._try("outputs", link, task, self._outputs.bring(link, task, may_be_large), within=None):
                    del self._failures[task.id]
                else:
                    self._failures[task.id] += 1
                    pause = min(BRING_AGAIN_WITHIN, RETRY_AFTER * 2.0 ** (self._failures[task.id] - 1))
                    self._not_before[_outputs_of(task)] = self._clock.now() + pause
        except NoAnswer as error:
            _log.info("%s", error)
            if link.online:
                self._not_before[_outputs_of(task)] = self._clock.now() + RETRY_AFTER
        finally:
            del here[task.id]
        with guarded_item(f"{link.node.name}: what is left of its tasks"):
            self._begin(link)

    async def _try(
        self,
        kind: str,
        link: NodeLink,
        task: Task,
        work: Coroutine[Any, Any, None],
        within: float | None = FETCH_WITHIN,
    ) -> bool:
        """What goes wrong with one task does not hold up the others. Raises NoAnswer, which is about all of them.

        Work of each kind writes into a store of its own. Gives whether it is done.
        """
        try:
            async with asyncio.timeout(within):
                await work
            self._troubles.pop(kind, None)
            self._warned.pop((kind, task.id), None)
            return True
        except NoAnswer:
            raise
        except StateError as error:
            self._troubles[kind] = f"{error}; the container stays on {link.node.name}, and it is tried again"
        except (AgentlessError, TimeoutError) as error:
            if self._warned.get((kind, task.id)) != str(error):
                self._warned[kind, task.id] = str(error)
                _log.warning("%s: task %s: %s", link.node.name, task.id, error)
        except PutOff:
            raise
        except Exception:  # noqa: BLE001 - one task must not hold up the others
            _log.exception("%s: keeping task %s failed in an unforeseen way", link.node.name, task.id)
        return False

    async def _fetch(self, link: NodeLink, task: Task) -> None:
        cap = min(self.keep.log, self.keep.logs)
        with self._logs.writer(task.id, cap) as log:
            await self._copy(link, task, log)
            if log.full:
                await self._copy_end(link, task, log, cap)
            await in_thread(log.finish)
            log.commit()
        if not self._tasks.history.has(task.id):  # removed meanwhile, or started again
            self._logs.remove(task.id)
        await asyncio.to_thread(self._logs.shrink, self.keep.logs)

    async def _copy(self, link: NodeLink, task: Task, log: LogWriter) -> None:
        tail, runtime = Excerpt(), link.runtime_of(task)
        reading = runtime.reading(LogQuery())
        async with link.stream(runtime.logs(task.container_ref, LogQuery()), own=True) as stream:
            async for fd, data in stream:
                for stream_number, part in reading(fd, data):
                    log.add(stream_number, part)
                if log.full:
                    return
                if fd == 2:
                    tail.add(data)
        if stream.exit_code != 0:
            raise RuntimeFailed(runtime.complaint(str(tail)))

    async def _copy_end(self, link: NodeLink, task: Task, log: LogWriter, cap: int) -> None:
        """The end of a log that is longer than what is kept: counted and cut on the node, to spare the link."""
        counts = {1: b"", 2: b""}

        def count(fd: int, data: bytes) -> None:
            counts[fd] += data
            if len(counts[fd]) > _NUMBER:
                raise RuntimeFailed("the length of its log is no number")

        await _run(link, link.runtime_of(task).filtered_logs(task.container_ref, _COUNT, _COUNT), count)
        left = {fd: int(counts[fd]) - log.head[fd] for fd in counts}
        end = split_tail(left, log.room)
        log.cut(cut_note({fd: left[fd] - end[fd] for fd in left}, cap))
        missing = dict(end)

        def put(fd: int, data: bytes) -> None:
            missing[fd] -= len(data)
            if missing[fd] < 0:
                raise RuntimeFailed("more of its log came than was asked for")
            log.put(fd, data)

        ends = (("tail", "-c", str(end[fd])) for fd in (1, 2))
        await _run(link, link.runtime_of(task).filtered_logs(task.container_ref, *ends), put)
        if any(missing.values()):
            raise RuntimeFailed("its log changed while it was read")

    async def _remove(self, link: NodeLink, task: Task) -> None:
        runtime = link.runtime_of(task)
        result = await link.run(runtime.remove(task.container_ref))
        if not result.ok and "no such container" not in result.err.lower():
            runtime.check(result)
        # The node's own news of it are still on their way.
        self._not_before[task.id] = self._clock.now() + RETRY_AFTER
        _log.info("%s: removed the container of task %s, whose log is kept", link.node.name, task.id)

    async def _reap(self, link: NodeLink, container: str) -> None:
        self._not_before[container] = self._clock.now() + RETRY_AFTER
        result = await link.run(link.runtime.reap(container))
        if result.ok:
            _log.info("%s: removed %s, which was never started", link.node.name, container[:12])
        else:
            _log.warning("%s: %s was never started and stays: %s", link.node.name, container[:12], result.err.strip())
        await link.refresh()


def _outputs_of(task: Task) -> str:
    """What they are called among what is not tried before its time."""
    return f"outputs of {task.id}"


async def _run(link: NodeLink, command: Command, take: Callable[[int, bytes], None]) -> None:
    async with link.stream(command, own=True) as stream:
        async for fd, data in stream:
            take(fd, data)
    if stream.exit_code != 0:
        raise RuntimeFailed("reading its log broke off")
