"""Retention: fetches logs and outputs of ended tasks, and removes their containers in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from agentless.controller.files.outputs import Outputs, PutOff
from agentless.controller.guarded import guarded, guarded_item
from agentless.controller.in_thread import in_thread
from agentless.controller.nodes.cluster_link import ClusterLink, TaskLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus, News
from agentless.controller.state.tasks import Tasks
from agentless.controller.tasks.backoff import RETRY_AFTER, Backoff
from agentless.controller.tasks.logs.copy import copy_log
from agentless.errors import NoAnswer, StateError
from agentless.inventory.inventory import Inventory
from agentless.model.containers.claim import named_task
from agentless.model.containers.container import Container
from agentless.model.tasks.retention import Keep
from agentless.model.tasks.task import Task
from agentless.ports import Clock
from agentless.rules.tasks.retention import LARGE_AT_ONCE, Chores, chores, fetched_now
from agentless.stores.files.logs import LogStore

BRING_AGAIN_WITHIN = 3600.0
"""Seconds before outputs are tried again, at most: the first time after `RETRY_AFTER`, then after twice as long."""
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
        self._nodes = nodes
        self._tasks = tasks
        self._bus = bus
        self._clock = clock
        self._logs = logs
        self._outputs = outputs
        self._backoff = Backoff(clock)
        self._known: dict[str, Task | None] = {}
        self._idle: dict[str, tuple[tuple[Container, ...], Keep, float]] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._bringing: defaultdict[str, dict[str, asyncio.Task[None]]] = defaultdict(dict)
        self._failures: Counter[str] = Counter()
        self._listening: asyncio.Task[None] | None = None

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its settings."""
        self.keep = inventory.keep

    @property
    def trouble(self) -> str | None:
        """Why logs or outputs cannot be kept here at present, each until one of its own kind could be."""
        return self._backoff.trouble

    @property
    def busy(self) -> bool:
        """Whether something is being fetched or removed."""
        return bool(self._at_work) or any(self._bringing.values())

    def tick(self) -> None:
        """Start whatever is due."""
        if self._backoff.tick():
            self._idle.clear()
        there = {container.id for link in self._nodes.every.values() for container in link.containers}
        self._known = {container: task for container, task in self._known.items() if container in there}
        with guarded("marking lost outputs"):
            self._outputs.settle_lost()
        for link in self._nodes.every.values():
            with guarded_item(f"{link.node.name}: cleaning up after tasks"):
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
                    self._backoff.note("stores", error)
                except Exception:  # noqa: BLE001 - one task must not end the keeping of all
                    _log.exception("cleaning up after tasks: unexpected error")

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
        elif link := self._nodes.every.get(task["node"]):
            self._begin(link)

    def _begin(self, link: TaskLink) -> None:
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
            self._at_work[name] = asyncio.create_task(self._work(link, todo), name=f"cleanup of {name}")
        elif not todo.bring:
            self._idle[name] = (link.containers, self.keep, todo.due)

    def _chores(self, link: TaskLink) -> Chores:
        found = [self._ended(container) for container in link.containers if container.over]
        # Of a machine that is in the inventory twice, each name shows the container: only its own fetches the log.
        own = (task for task in found if task and (task.node == link.node.name or task.node not in self._nodes.every))
        ended = {task.id: task for task in own if self._backoff.is_due(task.id)}
        untried = [container for container in link.containers if self._backoff.is_due(container.id)]
        todo = chores(
            untried, self._tasks.live, ended, self._logs, self._clock.now(), self.keep, self._outputs.expected
        )
        return replace(todo, bring=tuple(task for task in todo.bring if self._backoff.is_due(_outputs_of(task))))

    def _ended(self, container: Container) -> Task | None:
        """The task of a container if it has ended here. Looked up once, for that is a query to the history."""
        named = named_task(container)
        if named is None or named in self._tasks.live:
            return None
        if container.id not in self._known:
            self._known[container.id] = self._tasks.history.get(named)
        return self._known[container.id]

    # ------------------------------------------------------------------ doing it

    async def _work(self, link: TaskLink, todo: Chores) -> None:
        """Until there is nothing left to do, or the node does not answer: it is begun again when it does."""
        try:
            while todo.fetch or todo.remove or todo.reap:
                for task in todo.fetch:
                    await self._once("logs", link, task, self._fetch(link, task))
                for task in todo.remove:
                    await self._once("containers", link, task, self._remove(link, task))
                for container in todo.reap:
                    await self._reap(link, container)
                todo = self._chores(link)
            self._backoff.clear("stores")
        except NoAnswer as error:
            _log.info("%s", error)
        except StateError as error:
            self._backoff.note("stores", error)
        except Exception:  # noqa: BLE001 - begun again at the next tick
            _log.exception("%s: cleaning up after tasks: unexpected error", link.node.name)
        finally:  # in the same step as the last look: what is due from here on is begun anew
            del self._at_work[link.node.name]

    async def _once(self, kind: str, link: TaskLink, task: Task, work: Coroutine[Any, Any, None]) -> None:
        """Not again within a minute, if it fails."""
        if not await self._backoff.run(kind, link.node.name, task, work, FETCH_WITHIN):
            self._backoff.put_off(task.id)

    def _bring(self, link: TaskLink, waiting: Sequence[Task]) -> None:
        """Begin to fetch outputs, as far as it is the turn of these tasks."""
        here = self._bringing[link.node.name]
        for task in fetched_now(waiting, here, self._outputs.large):
            here[task.id] = asyncio.create_task(self._bring_one(link, task), name=f"outputs of {task.id}")

    async def _bring_one(self, link: TaskLink, task: Task) -> None:
        here, large = self._bringing[link.node.name], self._outputs.large

        def may_be_large() -> bool:
            return sum(other in large for other in here) <= LARGE_AT_ONCE

        try:
            with contextlib.suppress(PutOff):
                bringing = self._outputs.bring(link, task, may_be_large)
                if await self._backoff.run("outputs", link.node.name, task, bringing):
                    del self._failures[task.id]
                else:
                    self._failures[task.id] += 1
                    pause = min(BRING_AGAIN_WITHIN, RETRY_AFTER * 2.0 ** (self._failures[task.id] - 1))
                    self._backoff.put_off(_outputs_of(task), pause)
        except NoAnswer as error:
            _log.info("%s", error)
            if link.online:
                self._backoff.put_off(_outputs_of(task))
        finally:
            del here[task.id]
        with guarded_item(f"{link.node.name}: cleaning up after tasks"):
            self._begin(link)

    async def _fetch(self, link: TaskLink, task: Task) -> None:
        cap = min(self.keep.log, self.keep.logs)
        with self._logs.writer(task.id, cap) as log:
            await copy_log(link, task, log, cap)
            await in_thread(log.finish)
            log.commit()
        if not self._tasks.history.has(task.id):  # removed meanwhile, or started again
            self._logs.remove(task.id)
        await asyncio.to_thread(self._logs.shrink, self.keep.logs)

    async def _remove(self, link: TaskLink, task: Task) -> None:
        runtime = link.runtime_of(task)
        result = await link.run(runtime.remove(task.container_ref))
        if not result.ok and "no such container" not in result.err.lower():
            runtime.check(result)
        # The node's own news of it are still on their way.
        self._backoff.put_off(task.id)
        _log.info("%s: removed the container of task %s, whose log is kept", link.node.name, task.id)

    async def _reap(self, link: TaskLink, container: str) -> None:
        self._backoff.put_off(container)
        if isinstance(link, ClusterLink):
            return  # no job is created without being submitted
        result = await link.run(link.runtime.reap(container))
        if result.ok:
            _log.info("%s: removed %s, which never started", link.node.name, container[:12])
        else:
            _log.warning(
                ("%s: cannot remove %s, which never started: %s"), link.node.name, container[:12], result.err.strip()
            )
        await link.refresh()


def _outputs_of(task: Task) -> str:
    """What they are called among what is not tried before its time."""
    return f"outputs of {task.id}"
