"""The event bus: typed events for parts of the controller, and news for clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from agentless.controller.guarded import failed
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.node_record import NodeRecord
from agentless.model.nodes.sighting import Sighting
from agentless.model.tasks.task import Task

BACKLOG = 1000
"""News queued per listener; a slower one gets `missed` once and continues with the latest."""

News = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A task has changed, and the change is on disk."""

    before: Task
    after: Task

    def __str__(self) -> str:
        return f"task {self.after.id}: its change"


@dataclass(frozen=True, slots=True)
class TaskAdopted:
    """A task that only labels described is about to be added. They are untrusted, even if a person has confirmed it."""

    task: Task

    def __str__(self) -> str:
        return f"task {self.task.id}: its recovery"


@dataclass(frozen=True, slots=True)
class TaskForgotten:
    """A task was dropped: removed, or refused by its node."""

    task: Task

    def __str__(self) -> str:
        return f"task {self.task.id}: its removal"


@dataclass(frozen=True, slots=True)
class NodeObserved:
    """A node has a new observation; often only its readings differ."""

    node: str
    observation: Observation

    def __str__(self) -> str:
        return f"{self.node}: its sample"


@dataclass(frozen=True, slots=True)
class ContainersSeen:
    """A node has reported containers.

    `booted_at` is when it was seen to have been rebooted last, if ever; its `record` knows where its engine kept
    containers before.
    """

    node: str
    sighting: Sighting
    booted_at: float | None
    record: NodeRecord

    def __str__(self) -> str:
        return f"{self.node}: its containers"


@dataclass(frozen=True, slots=True)
class OutputsSettled:
    """The outputs of an ended task are here, or are waited for no more."""

    task: Task

    def __str__(self) -> str:
        return f"task {self.task.id}: its outputs"


@dataclass(frozen=True, slots=True)
class LaunchWanted:
    """A task was assigned to a node, but the node has no container of it: it must be launched again."""

    task: Task

    def __str__(self) -> str:
        return f"task {self.task.id}: retrying its launch"


AnyEvent = TaskChanged | TaskAdopted | TaskForgotten | NodeObserved | ContainersSeen | OutputsSettled | LaunchWanted
Event = TypeVar(
    "Event", TaskChanged, TaskAdopted, TaskForgotten, NodeObserved, ContainersSeen, OutputsSettled, LaunchWanted
)


class EventBus:
    """Calls the subscribers of an event synchronously, and queues news per listener: a slow one blocks nobody."""

    def __init__(self) -> None:
        self._subscribers: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)
        self._listeners: set[asyncio.Queue[News]] = set()
        self._woken: list[asyncio.Event] = []

    def subscribe(self, kind: type[Event], call: Callable[[Event], None]) -> None:
        """Call a subscriber at each event of this type; earlier subscribers are called first."""
        self._subscribers[kind].append(call)

    def emit(self, event: AnyEvent) -> None:
        """Call all subscribers of its type before this returns; failures are logged."""
        for call in self._subscribers[type(event)]:
            try:
                call(event)
            except Exception as error:  # noqa: BLE001 - the others have their turn
                failed(str(event), error)

    def publish(self, news: News) -> None:
        """Queue `news` for all listeners."""
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
        """An asyncio event that is set by all news."""
        event = asyncio.Event()
        self._woken.append(event)
        try:
            yield event
        finally:
            self._woken.remove(event)

    async def until(self, is_so: Callable[[], object], within: float | None = None) -> None:
        """Wait until the condition holds, for at most `within` seconds; it is checked after all news."""
        with self.listen() as news, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not is_so():
                    await anext(news)

    @contextlib.contextmanager
    def listen(self) -> Iterator[AsyncIterator[News]]:
        """All news published from now on."""
        queue: asyncio.Queue[News] = asyncio.Queue(BACKLOG + 2)
        self._listeners.add(queue)
        try:
            yield _drain(queue)
        finally:
            self._listeners.discard(queue)


async def _drain(queue: asyncio.Queue[News]) -> AsyncIterator[News]:
    while True:
        yield await queue.get()
