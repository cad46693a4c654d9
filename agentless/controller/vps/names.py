"""Which task each VPS is, by name."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.errors import NotFound, Refused, StateError
from agentless.model.tasks.task import Task
from agentless.rules.views.nearest import nearest
from agentless.stores.state.vps import VpsStore


class VpsNames:
    """The VPS of this controller, and one change at a time to each."""

    def __init__(self, tasks: Tasks, lookup: Lookup, store: VpsStore, stores: TaskStores, bus: EventBus) -> None:
        self._tasks = tasks
        self._lookup = lookup
        self._store = store
        self._stores = stores
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        tasks.vps.update(store.load())
        for task in tasks.live.values():
            self._notice(task)
        bus.subscribe(TaskChanged, lambda change: self._notice(change.after))

    def all(self) -> list[Task]:
        """Every VPS, by name."""
        found = []
        for name in sorted(self._tasks.vps):
            with suppress(NotFound):
                found.append(self.find(name))
        return found

    def find(self, name: str) -> Task:
        """The VPS of this name; raises NotFound."""
        if name not in self._tasks.vps:
            hint = nearest(name, self._tasks.vps)
            raise NotFound(f"no VPS {name[:80]!r}{hint}; to list them, run: agentless vps list")
        return self._lookup.task(self._tasks.vps[name])

    @asynccontextmanager
    async def creating(self, name: str) -> AsyncIterator[None]:
        """Create the VPS of this name, when nobody else does; raises Refused if there is one."""
        async with self._locks[name]:
            if name in self._tasks.vps and self._tasks.knows(self._tasks.vps[name]):
                raise Refused(f"VPS {name} already exists; to see it, run: agentless vps show {name}")
            yield

    @asynccontextmanager
    async def changing(self, name: str) -> AsyncIterator[Task]:
        """The VPS of this name, when nobody else changes it. Another task of this name does not become it meanwhile."""
        async with self._locks[name]:
            yield self.find(name)

    def set(self, name: str, task_id: str) -> None:
        """Make a task the VPS of this name."""
        self._tasks.vps[name] = task_id
        self._save()

    def drop(self, name: str) -> None:
        """Forget a name."""
        self._tasks.vps.pop(name, None)
        self._save()

    # ------------------------------------------------------------------ inside

    def _notice(self, task: Task) -> None:
        """Take in one that was found on a node, or that another controller process has begun."""
        name = task.spec.name
        if not name or not task.spec.traits.comes_back or self._locks[name].locked():
            return
        known = self._tasks.vps.get(name)
        if known == task.id and not task.live and task.container is None:
            self._back_to_the_earlier(name, task)
            return
        is_gone = known is None or not self._tasks.knows(known) or (task.live and known not in self._tasks.live)
        if is_gone and known != task.id:
            self.set(name, task.id)

    def _back_to_the_earlier(self, name: str, failed: Task) -> None:
        """A container that was to replace another never ran: the controller was killed meanwhile."""
        for task in self._tasks.history.find(name):
            if task.spec.name == name and task.spec.traits.comes_back and task.id != failed.id and task.container:
                self.set(name, task.id)
                return

    def _save(self) -> None:
        with suppress(StateError), self._stores.writing("state"):
            self._store.save(self._tasks.vps)
