"""Volumes: what tasks keep on a node beyond their own end. They are the nodes', which are asked each time.

Of a node that does not answer, what it had when it was asked last counts as there: a task must not find an empty volume
elsewhere because the node with the full one is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from agentless.controller.nodes.health.records import NodeRecords
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.errors import AgentlessError, NotFound, Refused, StateError, Unreachable
from agentless.model.caller import Caller
from agentless.model.nodes.node import unreachable
from agentless.model.tasks.spec import TaskSpec, check_volume
from agentless.model.tasks.task_id import first_try
from agentless.model.view import VolumeView
from agentless.rules.views.nearest import nearest
from agentless.stores.state.volumes import VolumeStore

ELSEWHERE = "specify another node (NODE or NODE::GPU) to create a new volume there"
"""What to do when the node with a volume does not answer."""


class Volumes:
    """Asks the nodes, and remembers the names of what each had."""

    def __init__(
        self, nodes: Nodes, tasks: Tasks, records: NodeRecords, store: VolumeStore, stores: TaskStores, bus: EventBus
    ) -> None:
        self._nodes = nodes
        self._tasks = tasks
        self._records = records
        self._store = store
        self._stores = stores
        self._known = store.load()
        self._unsaved = False
        for task in self._tasks.live.values():
            self._changed(TaskChanged(task, task))
        bus.subscribe(TaskChanged, self._changed)

    def flush(self) -> None:
        """Write what is not written yet."""
        if self._unsaved:
            with suppress(StateError), self._stores.writing("state"):
                self._store.save(self._known)
                self._unsaved = False

    async def all(self, *, sizes: bool = True) -> list[VolumeView]:
        """All volumes of ours on all nodes that answer; sizes take the engines a while, and are None without."""
        found, _ = await self._ask(sizes=sizes)
        return [volume for each in found.values() for volume in each]

    async def create(self, name: str, node: str, by: Caller) -> VolumeView:
        """Make a volume on a node; raises Refused when there is one of that name."""
        link = await self._reached(node)
        result = await link.run(link.runtime.volumes.create(check_volume(name), by.name))
        link.runtime.volumes.check(name, result)
        self._remember(node, {*self._known.get(node, ()), name})
        return VolumeView(link.node.name, name, by.name, 0, ())

    async def remove(self, name: str, node: str | None) -> list[VolumeView]:
        """Remove a volume of a node, None: of all that have it. Raises NotFound, and Refused while a task has it."""
        having = {node} if node else self._homes(*await self._ask(sizes=False)).get(name, set())
        removed = []
        for link in [await self._reached(each) for each in sorted(having)]:
            there = {volume.name: volume for volume in await self._of(link, sizes=False)}
            if name not in there:
                raise NotFound(
                    f"no volume {name!r} on {link.node.name}{nearest(name, there)}; to list volumes, run: agentless "
                    "volume list"
                )
            self._check_unused(link, there[name])
            link.runtime.volumes.check(name, await link.run(link.runtime.volumes.remove(name)))
            self._remember(link.node.name, there.keys() - {name})
            removed.append(there[name])
        if not removed:
            raise NotFound(f"no node has a volume {name!r}; to list volumes, run: agentless volume list")
        return removed

    async def placed(self, specs: Iterable[TaskSpec]) -> tuple[TaskSpec, ...]:
        """The specs, those with volumes that are somewhere already with the nodes that have them.

        Raises Refused when no node has all of them, and Unreachable where a node that does not answer has one, or may
        have it. Of a volume that is nowhere yet nothing follows: it is made where the task starts. Who names a node has
        said where.
        """
        specs = tuple(specs)
        if not any(spec.volumes and spec.needs.node is None for spec in specs):
            return specs
        found, silent = await self._ask(sizes=False)
        homes = self._homes(found, silent)
        return tuple(self._placed(spec, homes, silent) if spec.needs.node is None else spec for spec in specs)

    # ------------------------------------------------------------------ inside

    async def _ask(self, *, sizes: bool) -> tuple[dict[str, list[VolumeView]], dict[str, str]]:
        """What each node that answers has, and why the others do not."""
        await self._nodes.heard()
        silent = {
            name: unreachable(name, link.observation.error)
            for name, link in self._nodes.links.items()
            if not link.online
        }
        links = [link for name, link in self._nodes.links.items() if name not in silent]
        answers = await asyncio.gather(*(self._of(link, sizes=sizes) for link in links), return_exceptions=True)
        found = dict[str, list[VolumeView]]()
        for link, answer in zip(links, answers, strict=True):
            if isinstance(answer, AgentlessError):
                silent[link.node.name] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[link.node.name] = answer
        return found, silent

    def _homes(self, found: Mapping[str, list[VolumeView]], silent: Iterable[str]) -> dict[str, set[str]]:
        """The nodes that have each volume, or had it when they were asked last."""
        homes: dict[str, set[str]] = {}
        for node, volumes in found.items():
            for volume in volumes:
                homes.setdefault(volume.name, set()).add(node)
        for node in silent:
            for name in self._known.get(node, ()):
                homes.setdefault(name, set()).add(node)
        return homes

    def _placed(self, spec: TaskSpec, homes: Mapping[str, set[str]], silent: Mapping[str, str]) -> TaskSpec:
        known = [volume.name for volume in spec.volumes if volume.name in homes]
        for volume in spec.volumes:
            if volume.name not in homes:
                self._check_nowhere(volume.name, silent, spec.needs.exclude)
        if not known:
            return spec
        wanted = set(spec.needs.nodes or self._nodes.links).intersection(*(homes[name] for name in known))
        if not wanted:
            where = "; ".join(f"{name} is on {', '.join(sorted(homes[name]))}" for name in known)
            raise Refused(
                f"no matching node has all volumes of the task: {where}; specify a node to create new ones there"
            )
        if wanted <= silent.keys():
            why, names = silent[min(wanted)], ", ".join(known)
            raise Unreachable(f"{why}; it has volume {names}; wait for the node, or {ELSEWHERE}")
        nodes = tuple(name for name in self._nodes.links if name in wanted)
        return replace(spec, needs=replace(spec.needs, nodes=nodes))

    def _check_nowhere(self, name: str, silent: Mapping[str, str], exclude: Iterable[str]) -> None:
        """Raise Unreachable where a node that was never asked does not answer, unless it is drained or not wanted."""
        records = self._records.known
        drained = {node for node, record in records.items() if record.drain}
        for node in sorted(silent.keys() - self._known.keys() - drained - set(exclude)):
            raise Unreachable(
                f"{silent[node]}; its volumes were never listed, so it may have volume {name}; {ELSEWHERE}, "
                f"or exclude it: agentless nodes drain {node}"
            )

    def _changed(self, change: TaskChanged) -> None:
        """A task that is placed, or was started, has its volumes on its node."""
        task = change.after
        if task.spec.volumes and task.node and (task.live or task.container):
            names = {volume.name for volume in task.spec.volumes}
            self._remember(task.node, {*self._known.get(task.node, ()), *names})

    def _remember(self, node: str, names: Iterable[str]) -> None:
        if self._known.get(node) != (now := frozenset(names)):
            self._known[node], self._unsaved = now, True

    def _check_unused(self, link: NodeLink, volume: VolumeView) -> None:
        live = [task for task in volume.tasks if task in self._tasks.live and self._tasks.live[task].live]
        if live:
            raise Refused(
                f"task {live[0]} uses volume {volume.name} on {link.node.name}; stop it first: agentless stop {live[0]}"
            )
        if volume.tasks:
            first = first_try(volume.tasks[0])
            raise Refused(
                f"the container of ended task {volume.tasks[0]} uses volume {volume.name} on {link.node.name}; "
                f"remove it first: agentless rm {first}"
            )

    async def _reached(self, node: str) -> NodeLink:
        link = self._nodes.link(node)
        await link.ready()
        if not link.online:
            raise Unreachable(unreachable(node, link.observation.error))
        return link

    async def _of(self, link: NodeLink, *, sizes: bool) -> list[VolumeView]:
        asked = [link.run(link.runtime.volumes.all())]
        asked += [link.run(link.runtime.volumes.sizes())] if sizes else []
        found, *counted = await asyncio.gather(*asked, return_exceptions=True)
        if isinstance(found, BaseException):
            raise found
        known = dict[str, int]()
        for answer in counted:
            if not isinstance(answer, BaseException):  # else it takes too long to count
                known = link.runtime.volumes.parse_sizes(answer)
        volumes = [
            VolumeView(link.node.name, name, owner, known.get(name), tasks)
            for name, owner, tasks in link.runtime.volumes.parse(found)
        ]
        self._remember(link.node.name, (volume.name for volume in volumes))
        return volumes
