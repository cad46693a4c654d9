"""Which task each VPS is, by name, and which snapshots are its own."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.errors import NotFound, Refused, StateError
from agentless.model.tasks.task import Task
from agentless.rules.views.nearest import nearest
from agentless.stores.state.vps import OwnSnapshot, VpsRecord, VpsStore


class VpsNames:
    """The VPS of this controller, and one change at a time to each."""

    def __init__(self, tasks: Tasks, lookup: Lookup, store: VpsStore, stores: TaskStores, bus: EventBus) -> None:
        self._tasks = tasks
        self._lookup = lookup
        self._store = store
        self._stores = stores
        self._records = store.load()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._publish()
        for task in list(tasks.live.values()):
            self._notice(task)
        bus.subscribe(TaskChanged, lambda change: self._notice(change.after))

    def all(self) -> list[Task]:
        """Every VPS, by name."""
        found = []
        for name in sorted(self._tasks.vps):
            with suppress(NotFound):
                found.append(self.find(name))
        return found

    def name_of(self, reference: str) -> str:
        """The name of the VPS that is meant: `reference` is that, or the id of its task or of the one it replaced."""
        for name, task in self._tasks.vps.items():
            with suppress(NotFound):
                if reference in (task, self._lookup.task(task).spec.replaces):
                    return name
        return reference

    def find(self, name: str) -> Task:
        """The VPS of this name; raises NotFound."""
        if name not in self._tasks.vps:
            hint = nearest(name, self._tasks.vps)
            raise NotFound(f"no VPS {name[:80]!r}{hint}; to list them, run: agentless vps list")
        return self._lookup.task(self._tasks.vps[name])

    @asynccontextmanager
    async def creating(self, name: str) -> AsyncIterator[None]:
        """Create the VPS of this name, when nobody else does; raises Refused if there is one, or a node of this name.

        One that never had a container is none. `ssh`, `shell` and `cp` take names of both.
        """
        if self._lookup.is_node(name):
            raise Refused(f"{name} is a node of the inventory; choose another name for the VPS")
        async with self._locks[name]:
            with suppress(NotFound):
                known = self.find(name)
                if known.live or known.container is not None:
                    raise Refused(f"VPS {name} already exists; to see it, run: agentless vps show {name}")
            yield

    @asynccontextmanager
    async def changing(self, name: str) -> AsyncIterator[Task]:
        """The VPS of this name, when nobody else changes it. One that is still being created is not waited for."""
        task = self.find(name)
        if task.live and task.container is None:
            yield task
            return
        async with self._locks[name]:
            yield self.find(name)

    def record(self, name: str) -> VpsRecord:
        """What is known of a name."""
        return self._records.get(name, VpsRecord())

    def set(self, name: str, task_id: str) -> None:
        """Make a task the VPS of this name."""
        self._change(name, task=task_id)

    def cleared(self, name: str, task_id: str) -> None:
        """A container that was replaced is gone."""
        self._change(name, replaced=tuple(each for each in self.record(name).replaced if each != task_id))

    def drop(self, name: str, left: Iterable[str]) -> None:
        """Forget a VPS; `left` are earlier tasks that are still somewhere."""
        self._records[name] = VpsRecord(replaced=tuple(left))
        self._save()

    def add_snapshot(self, name: str, snapshot: OwnSnapshot) -> None:
        """Remember a snapshot that was made of it."""
        self._change(name, snapshots=(*self.record(name).snapshots, snapshot))

    def drop_snapshot(self, name: str, snapshot: OwnSnapshot) -> None:
        """Forget one."""
        self._change(name, snapshots=tuple(each for each in self.record(name).snapshots if each != snapshot))

    # ------------------------------------------------------------------ inside

    def _notice(self, task: Task) -> None:
        """Take in one that was found on a node, or the container that replaces another."""
        name = task.spec.name
        if not name or not task.spec.traits.comes_back or task.id in self.record(name).replaced:
            return
        known, before = self.record(name).task, task.spec.replaces
        if known == task.id:
            if before and not task.live and task.container is None:
                self._change(name, task=before)  # it never ran; the controller may have been killed meanwhile
                self.cleared(name, before)
        elif before and before == known:
            if task.live and task.container:
                self._change(name, task=task.id, replaced=(*self.record(name).replaced, before))
        elif not (known and self._tasks.knows(known)):
            self.set(name, task.id)

    def _change(self, name: str, **fields: Any) -> None:
        self._records[name] = replace(self.record(name), **fields)
        self._save()

    def _save(self) -> None:
        self._publish()
        with suppress(StateError), self._stores.writing("state"):
            self._store.save({name: record for name, record in self._records.items() if record != VpsRecord()})

    def _publish(self) -> None:
        self._tasks.vps = {name: record.task for name, record in self._records.items() if record.task}
