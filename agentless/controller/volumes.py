"""Volumes: what tasks keep on a node beyond their own end. They are the nodes': nothing of them is remembered here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from agentless.controller.core import Core
from agentless.controller.link import Link
from agentless.errors import AgentlessError, NotFound, Refused, Unreachable
from agentless.model.node import unreachable
from agentless.model.spec import TaskSpec, check_volume
from agentless.model.task_id import first_try
from agentless.model.view import VolumeView
from agentless.rules.nearest import nearest


class Volumes:
    """Asks the nodes, each time."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def all(self, *, sizes: bool = True) -> list[VolumeView]:
        """All volumes of ours on all nodes that answer; sizes take the engines a while, and are None without."""
        await self._core.heard(self._core.links)
        links = [link for link in self._core.links.values() if link.online]
        found = await asyncio.gather(*(self._of(link, sizes=sizes) for link in links), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, AgentlessError):
                raise each
        return [volume for each in found if not isinstance(each, BaseException) for volume in each]

    async def create(self, name: str, node: str, owner: str) -> VolumeView:
        """Make a volume on a node; raises Refused when there is one of that name."""
        link = await self._reached(node)
        result = await link.run(link.runtime.volumes.create(check_volume(name), owner))
        link.runtime.volumes.check(name, result)
        return VolumeView(link.node.name, name, owner, 0, ())

    async def remove(self, name: str, node: str | None) -> list[VolumeView]:
        """Remove a volume of a node, None: of all that have it. Raises NotFound, and Refused while a task has it."""
        if node is None:
            nodes = list(dict.fromkeys(volume.node for volume in await self.all(sizes=False) if volume.name == name))
        else:
            nodes = [node]
        removed = []
        for link in [await self._reached(each) for each in nodes]:
            there = {volume.name: volume for volume in await self._of(link, sizes=False)}
            if name not in there:
                raise NotFound(
                    f"no volume {name!r} on {link.node.name}{nearest(name, there)}; see agentless volume list"
                )
            self._check_unused(link, there[name])
            link.runtime.volumes.check(name, await link.run(link.runtime.volumes.remove(name)))
            removed.append(there[name])
        if not removed:
            raise NotFound(f"no node has a volume {name!r}; agentless volume list shows what there is")
        return removed

    async def placed(self, specs: Iterable[TaskSpec]) -> tuple[TaskSpec, ...]:
        """The specs, those with volumes that are somewhere already with the nodes that have them.

        Raises Refused when no node has all of them. Of a volume that is nowhere yet nothing follows: it is made where
        the task starts. Who names a node has said where.
        """
        specs = tuple(specs)
        if not any(spec.volumes and spec.needs.node is None for spec in specs):
            return specs
        homes: dict[str, set[str]] = {}
        for volume in await self.all(sizes=False):
            homes.setdefault(volume.name, set()).add(volume.node)
        return tuple(self._placed(spec, homes) if spec.needs.node is None else spec for spec in specs)

    # ------------------------------------------------------------------ inside

    def _placed(self, spec: TaskSpec, homes: dict[str, set[str]]) -> TaskSpec:
        known = [volume.name for volume in spec.volumes if volume.name in homes]
        if not known:
            return spec
        wanted = set(spec.needs.nodes or self._core.links).intersection(*(homes[name] for name in known))
        if not wanted:
            where = "; ".join(f"{name} is on {', '.join(sorted(homes[name]))}" for name in known)
            raise Refused(f"no node that will do has all of its volumes: {where}; name a node to have new ones there")
        nodes = tuple(name for name in self._core.links if name in wanted)
        return replace(spec, needs=replace(spec.needs, nodes=nodes))

    def _check_unused(self, link: Link, volume: VolumeView) -> None:
        live = [task for task in volume.tasks if task in self._core.tasks and self._core.tasks[task].live]
        if live:
            raise Refused(
                f"volume {volume.name} on {link.node.name} is used by task {live[0]}; agentless stop it first"
            )
        if volume.tasks:
            first = first_try(volume.tasks[0])
            raise Refused(
                f"volume {volume.name} on {link.node.name} is part of the container of task {volume.tasks[0]}, which "
                f"has ended; agentless rm {first} removes that"
            )

    async def _reached(self, node: str) -> Link:
        link = self._core.link(node)
        await link.ready()
        if not link.online:
            raise Unreachable(unreachable(node, link.observation.error))
        return link

    async def _of(self, link: Link, *, sizes: bool) -> list[VolumeView]:
        asked = [link.run(link.runtime.volumes.all())]
        asked += [link.run(link.runtime.volumes.sizes())] if sizes else []
        found, *counted = await asyncio.gather(*asked, return_exceptions=True)
        if isinstance(found, BaseException):
            raise found
        known = dict[str, int]()
        for answer in counted:
            if not isinstance(answer, BaseException):  # else it takes too long to count
                known = link.runtime.volumes.parse_sizes(answer)
        return [
            VolumeView(link.node.name, name, owner, known.get(name), tasks)
            for name, owner, tasks in link.runtime.volumes.parse(found)
        ]
