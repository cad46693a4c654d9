"""VPS by name: create, list, stop, start, remove."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.submit.request import Submit
from agentless.controller.submit.submission import Submission
from agentless.controller.tasks.removal import Removal
from agentless.controller.tasks.stops import Stops
from agentless.controller.vps.starts import VpsStarts
from agentless.errors import NotFound, Refused, StateError, UsageError
from agentless.model.caller import Caller
from agentless.model.tasks.task import Task
from agentless.model.view import StartView, TaskView
from agentless.rules.views.nearest import nearest
from agentless.stores.state.vps import VpsStore


class Vps:
    """All VPS that this controller knows."""

    def __init__(
        self,
        changes: tuple[Submission, Stops, Removal, VpsStarts],
        lookup: Lookup,
        store: VpsStore,
        stores: TaskStores,
        bus: EventBus,
    ) -> None:
        self._submission, self._stops, self._removal, self._starts = changes
        self._lookup = lookup
        self._store = store
        self._stores = stores
        self._ids = store.load()
        bus.subscribe(TaskChanged, self._changed)

    def all(self) -> list[Task]:
        """Every VPS, by name."""
        found = []
        for name in sorted(self._ids):
            with suppress(NotFound):
                found.append(self.find(name))
        return found

    def find(self, name: str) -> Task:
        """The VPS of this name; raises NotFound."""
        if name not in self._ids:
            raise NotFound(f"no VPS {name!r}{nearest(name, self._ids)}; to list them, run: agentless vps list")
        return self._lookup.task(self._ids[name])

    async def create(self, request: Submit) -> StartView:
        """Create one; raises Refused if the name is taken."""
        [spec, *more] = request.specs
        if more:
            raise UsageError("one VPS has one target; create each by its name")
        spec = replace(spec, workload="vps")
        if spec.name in self._ids and any(each.spec.name == spec.name for each in self.all()):
            raise Refused(f"VPS {spec.name} already exists; to see it, run: agentless vps show {spec.name}")
        [start] = await self._submission.submit(replace(request, specs=(spec,)))
        if start.task:
            self._remember(spec.name or "", start.task.id)
        return start

    async def stop(self, name: str, grace: float | None, *, by: Caller) -> Task:
        """Stop it: its GPUs are free, and its files stay."""
        task = self.find(name)
        self._starts.leave(task.id)
        return await self._stops.ask(task, "stop", grace, by=by)

    async def start(self, name: str, *, by: Caller) -> Task:
        """Start it again, with the same GPUs."""
        task = self.find(name)
        if task.live:
            raise Refused(f"VPS {name} is {task.state}; nothing to start")
        return await self._starts.start(task, f"agentless vps start, by {by}")

    async def restart(self, name: str, grace: float | None, *, by: Caller) -> Task:
        """Stop it if it runs, and start it."""
        if self.find(name).live:
            await self.stop(name, grace, by=by)
        return await self.start(name, by=by)

    async def remove(self, name: str, *, force: bool, by: Caller) -> TaskView:
        """Remove it with its files; a live one only by `force`."""
        task = self.find(name)
        if task.live and not force:
            raise Refused(f"VPS {name} is {task.state}; first run: agentless vps stop {name}, or use rm --force")
        removed = await self._removal.remove(task.id, force=force, by=by, vps=True)
        self._ids.pop(name, None)
        self._save()
        return removed

    # ------------------------------------------------------------------ inside

    def _changed(self, change: TaskChanged) -> None:
        """Remember one that was taken over from a node."""
        task = change.after
        if task.spec.traits.comes_back and task.spec.name and self._ids.get(task.spec.name) != task.id and task.live:
            self._remember(task.spec.name, task.id)

    def _remember(self, name: str, task_id: str) -> None:
        self._ids[name] = task_id
        self._save()

    def _save(self) -> None:
        with suppress(StateError), self._stores.writing("state"):
            self._store.save(self._ids)
