"""The event bus: typed events for parts of the controller, and news as JSON for whoever listens from outside."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from agentless.controller.guarded import guarded
from agentless.model.nodes.cluster import Observation
from agentless.model.tasks.task import Task

BACKLOG = 1000
"""News a listener may be behind; one that is slower is told `missed` once and goes on from the present."""

News = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A task has changed, and that is on disk."""

    before: Task
    after: Task

    def __str__(self) -> str:
        return f"task {self.after.id}: its change"


@dataclass(frozen=True, slots=True)
class NodeObserved:
    """Something new is known of a node of the inventory, were it only fresh numbers."""

    node: str
    observation: Observation

    def __str__(self) -> str:
        return f"{self.node}: its sample"


@dataclass(frozen=True, slots=True)
class LaunchWanted:
    """A node knows nothing of a task that it was given: it has to be launched once more."""

    task: Task

    def __str__(self) -> str:
        return f"task {self.task.id}: launching it again"


Event = TypeVar("Event", TaskChanged, NodeObserved, LaunchWanted)


class EventBus:
    """Tells subscribers of typed events at once, and hands news to listeners; a slow one never holds up the others."""

    def __init__(self) -> None:
        self._subscribers: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)
        self._listeners: set[asyncio.Queue[News]] = set()
        self._woken: list[asyncio.Event] = []

    def subscribe(self, kind: type[Event], told: Callable[[Event], None]) -> None:
        """Call `told` at each event of this kind, after those who have subscribed before."""
        self._subscribers[kind].append(told)

    def emit(self, event: TaskChanged | NodeObserved | LaunchWanted) -> None:
        """Tell all who have subscribed to its kind, before this returns; one that fails is logged."""
        for told in self._subscribers[type(event)]:
            with guarded(str(event)):
                told(event)

    def publish(self, news: News) -> None:
        """Hand `news` to all listeners."""
        for queue in self._listeners:
            if queue.full():
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait({"kind": "missed"})
            queue.put_nowait(news)
        for event in self._woken:
            event.set()

    @contextlib.contextmanager
    def waking(self) -> Iterator[asyncio.Event]:
        """An event that is set at all news, for who only wants to know that there are some."""
        event = asyncio.Event()
        self._woken.append(event)
        try:
            yield event
        finally:
            self._woken.remove(event)

    async def until(self, is_so: Callable[[], object], within: float | None = None) -> None:
        """Wait until something is so, which is looked at after all news, or for `within` seconds."""
        with self.listen() as news, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not is_so():
                    await anext(news)

    @contextlib.contextmanager
    def listen(self) -> Iterator[AsyncIterator[News]]:
        """Everything that is published from now on."""
        queue: asyncio.Queue[News] = asyncio.Queue(BACKLOG + 2)
        self._listeners.add(queue)
        try:
            yield _drain(queue)
        finally:
            self._listeners.discard(queue)


async def _drain(queue: asyncio.Queue[News]) -> AsyncIterator[News]:
    while True:
        yield await queue.get()
